/** Creates the rings of a queue pair in memory from its host. */
import {
  RQE,
  RQE_BYTES,
  ringCount,
  rqBytes,
  SQE,
  SQE_BYTES,
  sqBytes,
} from '#contract/protocol/queue-layout';
import type { QPInit, QPLayout } from '../queue-pair-init.ts';
import { IndexRing, ringBytes, ringGeometry } from './index-ring.ts';
import { receiveElementBytes, sendElementBytes } from './indexed-layout.ts';
import { ElementRing, requestRing } from './ring.ts';

export function makeRings(init: QPInit): QPLayout {
  return init.kind === 'indices' ? indexRings(init) : elementRings(init);
}

/** One block for each ring, or one block with the RQ after the SQ. */
function elementRings(init: QPInit): QPLayout {
  const sqCount = ringCount(init.capabilities.maxSendWr);
  const rqCount = init.srq === undefined ? ringCount(init.capabilities.maxRecvWr) : 0;
  const apart = init.receiveRing;
  const rqOffset = apart === undefined ? sqBytes(sqCount) : 0;
  const ring = requestRing(
    init.ring,
    apart === undefined ? rqOffset + rqBytes(rqCount) : sqBytes(sqCount),
  );
  const receiveRing =
    apart === undefined || rqCount === 0 ? ring : requestRing(apart, rqBytes(rqCount));
  return {
    kind: 'flags',
    ring,
    sqCount,
    rqOffset,
    rqCount,
    sends: new ElementRing(ring, 0, sqCount, SQE_BYTES, SQE.flags),
    receives:
      init.srq?.elements ?? new ElementRing(receiveRing, rqOffset, rqCount, RQE_BYTES, RQE.flags),
  };
}

/** A block for each ring. */
function indexRings(init: QPInit): QPLayout {
  const { capabilities, receiveRing = init.ring } = init;
  const { maxSendWr, maxRecvWr, maxSendSge, maxRecvSge, maxInlineData } = capabilities;
  const sq = ringGeometry(maxSendWr, sendElementBytes(maxSendSge, maxInlineData));
  const ring = requestRing(init.ring, ringBytes(sq));
  const sends = new IndexRing(ring, 0, sq);
  if (init.srq !== undefined) {
    const receives = init.srq.elements;
    return { kind: 'indices', ring, sqCount: sq.slots, rqOffset: 0, rqCount: 0, sends, receives };
  }
  const rq = ringGeometry(maxRecvWr, receiveElementBytes(maxRecvSge));
  const receives = new IndexRing(requestRing(receiveRing, ringBytes(rq)), 0, rq);
  return {
    kind: 'indices',
    ring,
    sqCount: sq.slots,
    rqOffset: 0,
    rqCount: rq.slots,
    sends,
    receives,
  };
}
