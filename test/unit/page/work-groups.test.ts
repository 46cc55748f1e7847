import { describe, expect, it } from 'vitest';
import type { TraceRecord } from '#contract/protocol/trace-sample';
import { groupWork, messageOf, sightingsOf } from '#daemon/page/work-groups';
import { cqe, fpdu, packet, record, wqe } from './trace-builder.ts';

/** Groups as texts: the WQE's lane and opcode, FPDUs with their direction, the CQE's status. */
function storiesOf(records: readonly TraceRecord[]): string[] {
  return groupWork(records.flatMap(sightingsOf)).map(({ wqe: posted, fpdus, cqe: done }) => {
    const wire = fpdus.map((each) => `${each.direction} ${each.record.opcode}`);
    const end = done === undefined ? [] : [done.record.status ?? ''];
    const { opcode, wrId } = posted.record;
    return [`${posted.lane}: ${opcode} ${wrId}`, ...wire, ...end].join(', ');
  });
}

describe('the parts of a work request', () => {
  it('a Send with its FPDU and completion, and the receive that it consumes at the other end', () => {
    const records = [
      wqe(1, 'SEND', '0x1'),
      cqe(1, 'SEND', '0x1'),
      fpdu(1, 2, 'Send'),
      wqe(2, 'RECV', '0x7'),
      cqe(2, 'RECV', '0x7'),
    ];
    expect(storiesOf(records)).toEqual([
      'iwarp0 QP 1: SEND 0x1, out Send, IBV_WC_SUCCESS',
      'iwarp0 QP 2: RECV 0x7, in Send, IBV_WC_SUCCESS',
    ]);
  });

  it('a Send of several RoCE packets, which completes once it is acknowledged', () => {
    const records = [
      wqe(1, 'SEND', '0x1'),
      packet(1, 2, 'RC SEND First'),
      wqe(2, 'RECV', '0x7'),
      packet(1, 2, 'RC SEND Middle'),
      packet(1, 2, 'RC SEND Last'),
      cqe(2, 'RECV', '0x7'),
      packet(2, 1, 'RC Acknowledge'),
      cqe(1, 'SEND', '0x1'),
      wqe(1, 'SEND', '0x2'),
      packet(1, 2, 'RC SEND Only'),
    ];
    expect(storiesOf(records)).toEqual([
      'iwarp0 QP 1: SEND 0x1, out RC SEND First, out RC SEND Middle, out RC SEND Last, IBV_WC_SUCCESS',
      'iwarp0 QP 2: RECV 0x7, in RC SEND First, in RC SEND Middle, in RC SEND Last, IBV_WC_SUCCESS',
      'iwarp0 QP 1: SEND 0x2, out RC SEND Only',
    ]);
  });

  it('Reads, atomics and a Write with immediate data over RoCE', () => {
    const records = [
      wqe(1, 'RDMA_READ', '0x1'),
      packet(1, 2, 'RC RDMA READ Request'),
      packet(2, 1, 'RC RDMA READ response First'),
      packet(2, 1, 'RC RDMA READ response Last'),
      wqe(1, 'ATOMIC_FETCH_AND_ADD', '0x2'),
      packet(1, 2, 'RC FetchAdd'),
      packet(2, 1, 'RC ATOMIC Acknowledge'),
      wqe(1, 'RDMA_WRITE_WITH_IMM', '0x3'),
      packet(1, 2, 'RC RDMA WRITE Only with Immediate'),
      wqe(2, 'RECV', '0x7'),
    ];
    expect(storiesOf(records)).toEqual([
      'iwarp0 QP 1: RDMA_READ 0x1, out RC RDMA READ Request, in RC RDMA READ response First, ' +
        'in RC RDMA READ response Last',
      'iwarp0 QP 1: ATOMIC_FETCH_AND_ADD 0x2, out RC FetchAdd, in RC ATOMIC Acknowledge',
      'iwarp0 QP 1: RDMA_WRITE_WITH_IMM 0x3, out RC RDMA WRITE Only with Immediate',
      'iwarp0 QP 2: RECV 0x7, in RC RDMA WRITE Only with Immediate',
    ]);
  });

  it('a Read with its request and all of its response', () => {
    const records = [
      wqe(1, 'RDMA_READ', '0x1'),
      fpdu(1, 2, 'Read Request'),
      fpdu(2, 1, 'Read Response', false),
      fpdu(2, 1, 'Read Response'),
      cqe(1, 'RDMA_READ', '0x1'),
    ];
    expect(storiesOf(records)).toEqual([
      'iwarp0 QP 1: RDMA_READ 0x1, out Read Request, in Read Response, in Read Response, IBV_WC_SUCCESS',
    ]);
  });

  it('messages of many FPDUs go to work requests in the order of posting', () => {
    const records = [
      wqe(1, 'RDMA_WRITE', '0x1'),
      wqe(1, 'RDMA_WRITE', '0x2'),
      fpdu(1, 2, 'Write', false),
      fpdu(1, 2, 'Write'),
      fpdu(1, 2, 'Write'),
      cqe(1, 'RDMA_WRITE', '0x2'),
    ];
    expect(storiesOf(records)).toEqual([
      'iwarp0 QP 1: RDMA_WRITE 0x1, out Write, out Write',
      'iwarp0 QP 1: RDMA_WRITE 0x2, out Write, IBV_WC_SUCCESS',
    ]);
  });

  it('a receive consumed while its Send is in progress has earlier and later FPDUs', () => {
    const records = [
      fpdu(1, 2, 'Send', false),
      wqe(2, 'RECV', '0x7'),
      fpdu(1, 2, 'Send'),
      cqe(2, 'RECV', '0x7'),
      fpdu(1, 2, 'Send'),
    ];
    expect(storiesOf(records)).toEqual(['iwarp0 QP 2: RECV 0x7, in Send, in Send, IBV_WC_SUCCESS']);
  });

  it('a receive whose Send came before the sample does not match the next one', () => {
    const records = [
      wqe(2, 'RECV', '0x7'),
      cqe(2, 'RECV', '0x7'),
      fpdu(1, 2, 'Send'),
      wqe(2, 'RECV', '0x8'),
    ];
    expect(storiesOf(records)).toEqual([
      'iwarp0 QP 2: RECV 0x7, IBV_WC_SUCCESS',
      'iwarp0 QP 2: RECV 0x8, in Send',
    ]);
  });

  it('of requests with equal numbers the oldest completes, and sends are distinguished from receives', () => {
    const records = [
      wqe(1, 'RECV', '0x0'),
      wqe(1, 'SEND', '0x0'),
      wqe(1, 'SEND', '0x0'),
      cqe(1, 'SEND', '0x0'),
      cqe(1, 'RECV', '0x0', 'IBV_WC_WR_FLUSH_ERR'),
    ];
    expect(storiesOf(records)).toEqual([
      'iwarp0 QP 1: RECV 0x0, IBV_WC_WR_FLUSH_ERR',
      'iwarp0 QP 1: SEND 0x0, IBV_WC_SUCCESS',
      'iwarp0 QP 1: SEND 0x0',
    ]);
  });

  it('parts of other work requests stay separate', () => {
    const records = [
      wqe(1, 'RDMA_WRITE', '0x1'),
      fpdu(1, 2, 'Read Response'),
      fpdu(1, 2, 'Terminate'),
      cqe(1, 'SEND', '0x9'),
    ];
    expect(storiesOf(records)).toEqual(['iwarp0 QP 1: RDMA_WRITE 0x1']);
  });

  it('queue pairs of two devices with one number are distinct', () => {
    const records = [
      wqe(1, 'SEND', '0x1'),
      record('cqe', { device: 'b', qpn: 1, opcode: 'SEND', wrId: '0x1', text: 'CQE' }),
    ];
    expect(storiesOf(records)).toEqual(['iwarp0 QP 1: SEND 0x1']);
  });
});

describe('lanes', () => {
  it('both queue pairs see what passes between them, each from its own side', () => {
    expect(sightingsOf(fpdu(1, 2, 'Send')).map(({ lane, direction }) => [lane, direction])).toEqual(
      [
        ['iwarp0 QP 1', 'out'],
        ['iwarp0 QP 2', 'in'],
      ],
    );
  });

  it('a link without a queue pair has its own lane', () => {
    const request: TraceRecord = {
      micros: 1,
      kind: 'mpa',
      link: 4,
      by: 'peer',
      text: 'MPA Request',
    };
    expect(sightingsOf(request)).toEqual([{ record: request, lane: 'link 4', direction: 'in' }]);
  });
});

describe('RDMAP messages', () => {
  it.each([
    ['Send', 'send'],
    ['Send with Solicited Event and Invalidate', 'send'],
    ['Write', 'write'],
    ['RDMA Write', 'write'],
    ['Read Request', 'readRequest'],
    ['Read Response', 'readResponse'],
    ['Terminate', 'terminate'],
    ['Immediate Data', 'immediate'],
    ['Atomic Request', 'atomicRequest'],
    ['Atomic Response', 'atomicResponse'],
    ['Opcode 15', 'other'],
  ])('%s is known', (opcode, message) => {
    expect(messageOf(opcode)).toBe(message);
  });
});
