/**
 * For a guest with SCTP in its kernel: the compliance suite's parts that connect and transfer. A guest
 * is slow, and the other parts are the same over any wire.
 */
import { describe } from 'vitest';
import { connectionSuite } from './connections.ts';
import { sctpFixtures } from './sctp-fixture.ts';
import { transferSuite } from './transfers.ts';

const { daemon } = sctpFixtures('kernel');

describe('over SCTP by the kernel', () => {
  describe('connections', () => connectionSuite(daemon));
  describe('transfers', () => transferSuite(daemon));
});
