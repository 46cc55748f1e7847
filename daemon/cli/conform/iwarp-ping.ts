/** Segments that the tester sends, and the exchange that makes an iWARP peer read, write and send. */
import {
  makeTaggedHeader,
  makeUntaggedHeader,
  TAGGED_HEADER_BYTES,
  UNTAGGED_HEADER_BYTES,
  writeTaggedHeader,
  writeUntaggedHeader,
} from '#daemon/iwarp/wire/ddp-header';
import {
  QueueNumber,
  RDMAPControl,
  RDMAPOpcode,
  READ_REQUEST_BYTES,
  ReadRequest,
  rdmapControl,
  readReadRequest,
  writeReadRequest,
} from '#daemon/iwarp/wire/rdmap-header';
import { ADVERT_BYTES, type Advert, emitAdvert } from '../rping/rping-protocol.ts';
import type { IwarpConnection, PeerSegment } from './iwarp-connection.ts';
import { segmentText } from './iwarp-connection.ts';
import { demand } from './row.ts';
import { SINK, SOURCE } from './tester-memory.ts';

/** An untagged segment; a whole message unless `mo` or `last` says otherwise. */
export function untagged(
  fields: { readonly ulp: number; readonly qn: number; readonly msn: number } & Partial<{
    readonly last: boolean;
    readonly mo: number;
    readonly ulpWord: number;
  }>,
  payload: Uint8Array,
): Uint8Array {
  const bytes = new Uint8Array(UNTAGGED_HEADER_BYTES + payload.length);
  writeUntaggedHeader(bytes, 0, Object.assign(makeUntaggedHeader(), { last: true }, fields));
  bytes.set(payload, UNTAGGED_HEADER_BYTES);
  return bytes;
}

/** A tagged segment at an address. */
export function tagged(
  opcode: RDMAPOpcode,
  stag: number,
  address: bigint,
  payload: Uint8Array,
  last = true,
): Uint8Array {
  const bytes = new Uint8Array(TAGGED_HEADER_BYTES + payload.length);
  writeTaggedHeader(
    bytes,
    0,
    Object.assign(makeTaggedHeader(), {
      last,
      ulp: rdmapControl(opcode),
      stag,
      ...halves(address),
    }),
  );
  bytes.set(payload, TAGGED_HEADER_BYTES);
  return bytes;
}

export function sendOf(connection: IwarpConnection, payload: Uint8Array): Uint8Array {
  const ulp = rdmapControl(RDMAPOpcode.send);
  return untagged({ ulp, qn: QueueNumber.send, msn: connection.nextSendMsn() }, payload);
}

/**
 * A Read Request for the peer's memory. Its sink buffer has no memory: only the Response names it.
 */
export function readRequestOf(
  connection: IwarpConnection,
  stag: number,
  address: bigint,
  size: number,
): Uint8Array {
  const source = halves(address);
  const request: ReadRequest = Object.assign(new ReadRequest(), {
    sinkStag: SINK.rkey,
    sinkToHi: Number(SINK.address >> 32n),
    sinkToLo: Number(SINK.address & 0xffff_ffffn),
    size,
    sourceStag: stag,
    sourceToHi: source.toHi,
    sourceToLo: source.toLo,
  });
  const bytes = new Uint8Array(READ_REQUEST_BYTES);
  writeReadRequest(request, bytes, 0);
  const ulp = rdmapControl(RDMAPOpcode.readRequest);
  return untagged({ ulp, qn: QueueNumber.readRequest, msn: connection.nextReadMsn() }, bytes);
}

/** Reads the peer's memory. Throws `Deviation` for a wrong Response. */
export async function read(
  connection: IwarpConnection,
  stag: number,
  address: bigint,
  size: number,
): Promise<{ readonly bytes: Uint8Array; readonly segments: readonly PeerSegment[] }> {
  connection.sendUlpdu(readRequestOf(connection, stag, address, size));
  const segments: PeerSegment[] = [];
  let length = 0;
  for (;;) {
    const segment = await connection.segment('a Read Response');
    const { header, payload } = segment;
    const isResponse =
      header.tagged && (header.ulp & RDMAPControl.opcode) === RDMAPOpcode.readResponse;
    demand(isResponse, `expected a Read Response, received ${segmentText(segment)}`);
    const expected = SINK.address + BigInt(length);
    const at = (BigInt(header.toHi) << 32n) | BigInt(header.toLo);
    demand(
      header.stag === SINK.rkey && at === expected,
      'it is for another buffer than the Request named',
    );
    segments.push(segment);
    length += payload.length;
    if (header.last) break;
  }
  demand(length === size, `the Response has ${length} bytes instead of ${size}`);
  return { bytes: Buffer.concat(segments.map(({ payload }) => payload)), segments };
}

/** The peer's segments of a ping. */
interface Ping {
  readonly readRequest: PeerSegment;
  readonly writes: readonly PeerSegment[];
  readonly sends: readonly [PeerSegment, PeerSegment];
}

/**
 * A whole ping: the peer reads a text, sends a go-ahead, writes the text back and sends another.
 */
export async function ping(connection: IwarpConnection, text: Uint8Array): Promise<Ping> {
  advertise(connection, SOURCE, text.length);
  const readRequest = await connection.segment('a Read Request');
  answerRead(connection, readRequest, text);
  const first = await connection.segment('a Send');
  advertise(connection, SINK, text.length);
  const writes: PeerSegment[] = [];
  do writes.push(await connection.segment('a Write'));
  while (writes.at(-1)?.header.last === false);
  const second = await connection.segment('a Send');
  return { readRequest, writes, sends: [first, second] };
}

export function advertOf(buffer: Omit<Advert, 'size'>, size: number): Uint8Array {
  const bytes = new Uint8Array(ADVERT_BYTES);
  emitAdvert({ ...buffer, size }, bytes);
  return bytes;
}

export function advertise(
  connection: IwarpConnection,
  buffer: Omit<Advert, 'size'>,
  size: number,
): void {
  connection.sendUlpdu(sendOf(connection, advertOf(buffer, size)));
}

/** The fields of a Read Request from the peer. Throws `Deviation` if the segment is not one. */
export function requestIn(segment: PeerSegment): ReadRequest {
  const { header, payload } = segment;
  const isRequest = !header.tagged && header.qn === QueueNumber.readRequest;
  demand(isRequest, `expected a Read Request, received ${segmentText(segment)}`);
  demand(payload.length === READ_REQUEST_BYTES, `its header has ${payload.length} bytes`);
  const request = new ReadRequest();
  readReadRequest(payload, 0, request);
  return request;
}

/** Answers a Read Request from the peer with these bytes. */
function answerRead(connection: IwarpConnection, segment: PeerSegment, bytes: Uint8Array): void {
  const { sinkStag, sinkToHi, sinkToLo } = requestIn(segment);
  const address = (BigInt(sinkToHi) << 32n) | BigInt(sinkToLo);
  connection.sendUlpdu(tagged(RDMAPOpcode.readResponse, sinkStag, address, bytes));
}

function halves(address: bigint): { readonly toHi: number; readonly toLo: number } {
  return { toHi: Number(address >> 32n), toLo: Number(address & 0xffff_ffffn) };
}
