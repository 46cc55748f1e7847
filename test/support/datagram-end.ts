/** UD queue pairs of real devices, as an unmodified program has them. */
import { Access, QPState, QPType } from '#contract/verbs/enums';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import { IndexRingClient } from './index-ring-client.ts';
import { bringTo } from './program-steps.ts';
import { MEMORY_ADDRESS } from './test-memory.ts';

/** A UD queue pair, in RTS unless another state is given, with rings as rxe's provider has them. */
export function datagramEnd(
  { nic }: EmulatedDevice,
  drain: () => void,
  state: QPState = QPState.RTS,
) {
  const pd = nic.allocPD();
  const memory = new Uint8Array(4096);
  const mr = nic.regMR(pd, {
    backing: new ViewBacking(memory),
    backingOffset: 0,
    lengthBytes: memory.length,
    address: MEMORY_ADDRESS,
    iova: MEMORY_ADDRESS,
    access: Access.localWrite,
    key: undefined,
  });
  const rings: Uint8Array[] = [];
  const ring = (bytes: number): Uint8Array => {
    const made = new Uint8Array(bytes);
    rings.push(made);
    return made;
  };
  const cq = nic.createCQ({ cqe: 31, kind: 'indices', ring, tag: undefined });
  const qp = nic.createQP(pd, {
    type: QPType.ud,
    kind: 'indices',
    sendCQ: cq,
    recvCQ: cq,
    srq: undefined,
    capabilities: { maxSendWr: 7, maxRecvWr: 7, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 },
    sqSigAll: false,
    ring,
    tag: undefined,
  });
  bringTo(qp, state);
  drain();
  const completions = new IndexRingClient(rings[0] ?? memory);
  const sends = new IndexRingClient(qp.ring);
  const receives = new IndexRingClient(rings.at(-1) ?? memory, qp.rqOffset);
  const piece = (length: number) => ({ addr: MEMORY_ADDRESS, length, lkey: mr.lkey });
  return { nic, pd, qp, memory, completions, sends, receives, piece };
}
