import { vi } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { sctpFixtures } from './sctp-fixture.ts';
import { complianceSuite } from './suite.ts';

// The UDP port of an address belongs to one process, so this process has separate addresses.
vi.hoisted(() => {
  const { pid } = process;
  const own = (last: number) => `127.${128 + ((pid >> 8) & 0x7f)}.${pid & 0xff}.${last}`;
  process.env['IWARPD_SUITE_ADDRESSES'] = [own(31), '::1', own(32)].join(',');
});

const { embedded, daemon } = sctpFixtures('usrsctp');

describeWith(['sctp'], 'over SCTP', () => {
  complianceSuite('embedded', embedded);
  complianceSuite('daemon', daemon);
});
