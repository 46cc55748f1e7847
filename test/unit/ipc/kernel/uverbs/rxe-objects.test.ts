/** Objects of a RoCE device, by commands as rxe's provider writes them. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { addressOf } from '../../../../../native-bridge/libc/libc.ts';
import { bytesOf } from '../../../../support/hex.ts';
import { recordedCommand } from '../../../../support/rxe-recordings.ts';
import { commands, le, plain, RSP, UverbsRig } from '../../../../support/uverbs-rig.ts';

const EBUSY = -16;
const EINVAL = -22;

let rig: UverbsRig;

beforeEach(() => {
  const devices = [{ name: 'rxe0', addresses: ['127.0.0.1'], transport: 'roce' as const }];
  rig = new UverbsRig({ devices });
  rig.must(commands.getContext());
});

afterEach(() => rig.close());

const allocMW = (pd: number, type: number) => plain(14, 8, `${RSP} ${le(pd)} ${le(type, 1)} 00*3`);

describe('a memory window', () => {
  it('is made and freed by the recorded commands', () => {
    rig.create(commands.allocPD());
    const reply = rig.must(bytesOf(recordedCommand('ALLOC_MW').request));
    expect(reply.byteLength).toBe(bytesOf(recordedCommand('ALLOC_MW').response).length);
    expect(reply.getUint32(0, true)).toBe(1);
    expect(reply.getUint32(4, true)).not.toBe(0);
    expect(rig.write(commands.deallocPD(0)).status).toBe(EBUSY);
    rig.must(plain(16, 0, le(1)));
    expect(rig.write(commands.deallocPD(0)).status).toBe(0);
  });

  it('has type 1 or 2', () => {
    rig.create(commands.allocPD());
    expect(rig.write(allocMW(0, 1)).status).toBe(0);
    expect([0, 3].map((type) => rig.write(allocMW(0, type)).status)).toEqual([EINVAL, EINVAL]);
  });

  it('is freed when its file is closed', () => {
    const other = rig.openFile(78);
    rig.must(commands.getContext(), other);
    rig.create(commands.allocPD(), other);
    rig.must(allocMW(0, 2), other);
    const { nic } = other.device;
    expect(nic.liveCounts()['mw']).toBe(1);
    other.close();
    expect(nic.liveCounts()['mw']).toBe(0);
  });
});

describe('a memory region', () => {
  it('keeps the rights to atomics and windows, and its keys have no private part', () => {
    rig.create(commands.allocPD());
    const memory = new Uint8Array(4096);
    const start = le(addressOf(memory), 8);
    const request = `${RSP} ${start} ${le(4096, 8)} ${start} ${le(0)} ${le(0x1f)}`;
    const reply = rig.must(plain(9, 12, request));
    expect(reply.byteLength).toBe(12);
    expect(rig.file.table.expect('mr', 1).mr.access).toBe(0x1f);
  });
});
