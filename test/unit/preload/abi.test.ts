/** The numbers and layouts that the C sources of the preload library share with the daemon. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import {
  emitHello,
  emitWelcome,
  FRAME_HEADER_BYTES,
  FrameType,
  HELLO_BYTES,
  IPC_VERSION,
  Role,
  TOKEN_BYTES,
} from '#contract/protocol/ipc-frames';
import {
  AGENT_REPLY_BYTES,
  AGENT_REQUEST_BYTES,
  AGENT_TRANSFER_MAX_BYTES,
  AgentOperation,
  emitAgentRequest,
  parseAgentReply,
} from '#contract/protocol/ipc-records';
import {
  CQE,
  CQE_BYTES,
  CQEStatus,
  cqBytes,
  QueueFlag,
  RQE,
  RQE_BYTES,
  SQE,
  SQE_BYTES,
  SQOpcode,
} from '#contract/protocol/queue-layout';
import { Access, CMEventType } from '#contract/verbs/enums';
import { CmCommand, parseCmRequest } from '#daemon/kernel/cm/abi';
import { CM_EVENT_MIN_BYTES, emitCmEvent } from '#daemon/kernel/cm/event-record';
import { EVENT_RING_BYTES, EVENT_RING_RECORDS } from '#daemon/kernel/event-ring';
import { RDMA_CM_NUMBER } from '#daemon/kernel/nldev/devices';
import { PAGE_BYTES, type Ring } from '#daemon/kernel/ring-mapping';
import {
  armRequest,
  emitReply,
  REQUEST_PAYLOAD_MAX_BYTES,
  ReplyFlag,
  RequestFlag,
  RequestReader,
  ShimOp,
  type ShimRequest,
} from '#daemon/kernel/shim-protocol';
import * as uverbs from '#daemon/kernel/uverbs/layouts';
import { putMmInfo } from '#daemon/kernel/uverbs/rxe/mminfo';
import { SEND_WORDS_BYTES } from '#daemon/kernel/uverbs/send-words';
import { CreatedCQ, CreatedQP } from '#daemon/kernel/uverbs/siw/layouts';
import { type CStruct, declarationsOf } from './c-declarations.ts';

const textOf = (path: string): string =>
  readFileSync(fileURLToPath(new URL(`../../../${path}`, import.meta.url)), 'utf8');
const inC = (...files: string[]) =>
  declarationsOf(files.map((file) => textOf(`native-bridge/preload/${file}`)).join('\n'));

const abi = inC('kernel-abi.h');
const protocol = inC('protocol.h');

/** `snake_case`, `UPPER_CASE` and `camelCase` as one. */
const plain = (name: string): string => name.replaceAll('_', '').toLowerCase();

/** The constants of an enum without the prefix, as a table of the daemon has them. */
function expectMembers(
  members: ReadonlyMap<string, number>,
  prefix: string,
  table: Readonly<Record<string, number>>,
): void {
  const known = new Map(Object.entries(table).map(([name, value]) => [plain(name), value]));
  expect(members.size).toBeGreaterThan(0);
  for (const [name, value] of members) {
    expect(known.get(plain(name.slice(prefix.length))), name).toBe(value);
  }
}

/** The fields of `struct` that `table` has: at least one, and all but headers and unused fields. */
function expectFields(struct: CStruct, table: Readonly<Record<string, number>>): void {
  const known = new Map(Object.entries(table).map(([name, value]) => [plain(name), value]));
  const unused = new Set(['header', 'response', 'reserved', 'limits', 'pad', 'place', 'places']);
  const fields = [...struct.fields].filter(([name]) => !unused.has(name) || known.has(name));
  expect(fields.length).toBeGreaterThan(0);
  for (const [name, { offset }] of fields) expect(offset, name).toBe(known.get(plain(name)));
}

/** The unsigned integers of a struct at `at`. */
function read(struct: CStruct, bytes: Uint8Array, at = 0): Record<string, number> {
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, struct.bytes);
  const fields = [...struct.fields].filter(([, { bytes }]) => bytes <= 8);
  return Object.fromEntries(
    fields.map(([name, field]) => {
      let value = 0;
      for (let index = field.bytes - 1; index >= 0; index -= 1) {
        value = value * 256 + view.getUint8(field.offset + index);
      }
      return [name, value];
    }),
  );
}

/** The bytes of a struct whose fields have these values. */
function write(struct: CStruct, values: Readonly<Record<string, number>>): Uint8Array {
  const bytes = new Uint8Array(struct.bytes);
  for (const [name, value] of Object.entries(values)) {
    const field = struct.fields.get(name) ?? { offset: Number.NaN, bytes: 0 };
    for (let index = 0; index < field.bytes; index += 1) {
      bytes[field.offset + index] = Math.floor(value / 256 ** index) % 256;
    }
  }
  return bytes;
}

describe('commands of the kernel, as the preload library reads them', () => {
  it('have the numbers that the daemon knows', () => {
    expectMembers(abi.members('uverbs_number'), 'UVERBS_', uverbs.UverbsCommandNumber);
    expect(abi.constant('UVERBS_EXTENDED')).toBe(uverbs.CommandBit.extended);
    const { extended } = uverbs.CommandBit;
    const createQP = (extended | uverbs.ExtendedCommandNumber.createQP) >>> 0;
    expect(abi.constant('UVERBS_EX_CREATE_QP')).toBe(createQP);
    expectMembers(abi.members('cm_number'), 'CM_', CmCommand);
  });

  it('have headers with the same fields', () => {
    const header = abi.struct('command_header');
    const { command, inWords, outWords, bytes } = uverbs.CommandHeader;
    expectFields(header, { number: command, in: inWords, out: outWords });
    expect(header.bytes).toBe(bytes);
    const extended = abi.struct('uverbs_extended_header');
    const { response, providerInWords, providerOutWords } = uverbs.ExtendedHeader;
    expectFields(extended, {
      response,
      providerIn: providerInWords,
      providerOut: providerOutWords,
    });
    expect(extended.bytes).toBe(uverbs.ExtendedHeader.bytes);
    expect(abi.struct('uverbs_plain').fields.get('response')?.offset).toBe(response);
    expect(parseCmRequest(write(header, { number: 19, in: 0, out: 296 }))).toMatchObject({
      command: 19,
      outBytes: 296,
    });
  });

  it.each([
    ['uverbs_reg_mr', uverbs.RegMR.request],
    ['uverbs_dereg_mr', uverbs.PlainDestroy.request],
    ['uverbs_create_cq', uverbs.CreateCQ.request],
    ['uverbs_resize_cq', uverbs.ResizeCQ.request],
    ['uverbs_notify', uverbs.RequestNotify.request],
    ['uverbs_create_qp', uverbs.CreateQP.request],
    ['uverbs_destroy', uverbs.CountedDestroy.request],
    ['uverbs_post_send', uverbs.PostSend.request],
  ])('have the fields of %s', (name, table) => {
    expectFields(abi.struct(name), table);
    expect(abi.struct(name).bytes).toBe(table.bytes);
  });

  it('have the fields that providers add or move', () => {
    expectFields(abi.struct('uverbs_ex_create_qp'), uverbs.ExtendedCreateQP.request);
    const modify = abi.struct('rxe_modify_srq');
    expectFields(modify, uverbs.ModifySRQ.request);
    expect(modify.fields.get('place')?.offset).toBe(uverbs.ModifySRQ.request.bytes);
  });

  it('register memory that the device writes by the same rights', () => {
    const { localWrite, remoteWrite, remoteAtomic, mwBind } = Access;
    const writes = localWrite | remoteWrite | remoteAtomic | mwBind;
    expect(abi.constant('ACCESS_WRITES')).toBe(writes);
  });
});

/** The fields of a response: those of all providers, then the private ones. */
const shifted = (bytes: number, own: Readonly<Record<string, number>>) =>
  Object.fromEntries(Object.entries(own).map(([name, offset]) => [name, bytes + offset]));

describe('responses, as the preload library reads them', () => {
  it("have the fields of siw's provider", () => {
    const cq = abi.struct('siw_created_cq');
    const { bytes: cqBytes, ...cqShared } = uverbs.CreateCQ.response;
    expectFields(cq, { ...cqShared, ...shifted(cqBytes, CreatedCQ) });
    expect(cq.bytes).toBe(cqBytes + CreatedCQ.bytes);
    const qp = abi.struct('siw_created_qp');
    const { bytes: qpBytes, ...qpShared } = uverbs.CreateQP.response;
    expectFields(qp, { ...qpShared, ...shifted(qpBytes, CreatedQP) });
    expect(qp.bytes).toBe(qpBytes + CreatedQP.bytes);
    expect(abi.constant('GET_CONTEXT_BYTES')).toBe(uverbs.GetContext.response.bytes);
    expect(abi.constant('POST_SEND_RESPONSE_BYTES')).toBe(uverbs.PostSend.response.bytes);
  });

  it("have the places of rings for rxe's provider", () => {
    const place = abi.struct('rxe_place');
    const bytes = new Uint8Array(place.bytes);
    putMmInfo(new DataView(bytes.buffer), 0, { key: 2 ** 33, mappedBytes: 4097 } as Ring);
    expect(read(place, bytes)).toEqual({ offset: 2 ** 33, bytes: 2 * PAGE_BYTES, pad: 0 });
    const at = (name: string, field: string) => abi.struct(name).fields.get(field)?.offset;
    expect(at('rxe_created_cq', 'place')).toBe(uverbs.CreateCQ.response.bytes);
    expect(at('rxe_created_cq', 'place')).toBe(uverbs.ResizeCQ.response.bytes);
    expect(at('rxe_created_qp', 'places')).toBe(uverbs.CreateQP.response.bytes);
    expect(at('rxe_ex_created_qp', 'places')).toBe(uverbs.ExtendedCreateQP.response.bytes);
    expectFields(abi.struct('rxe_created_qp'), uverbs.CreateQP.response);
    const { responseLength } = uverbs.ExtendedCreateQP.response;
    expect(at('rxe_ex_created_qp', 'response_length')).toBe(responseLength);
  });

  it('are events of rdma_cm', () => {
    const record = emitCmEvent({
      uid: 7n,
      number: 8,
      type: CMEventType.established,
      status: 0,
      parameters: { kind: 'written', argument: 0n },
    });
    const event = { uid: 7, id: 8, type: abi.constant('CM_ESTABLISHED') };
    expect(read(abi.struct('cm_event'), record)).toEqual(event);
    expect(abi.constant('CM_EVENT_BYTES')).toBe(record.length);
    expect(abi.constant('CM_EVENT_MIN_BYTES')).toBe(CM_EVENT_MIN_BYTES);
    expectMembers(abi.members('cm_event_type'), 'CM_', CMEventType);
  });
});

describe('the protocol of the preload library and the daemon', () => {
  const token = new Uint8Array(TOKEN_BYTES).fill(9);

  it('starts with the same greeting', () => {
    const hello = protocol.struct('hello');
    const emitted = emitHello(Role.uverbs, token);
    expect(emitted).toHaveLength(hello.bytes);
    expect(read(protocol.struct('frame_header'), emitted)).toMatchObject({
      payload_bytes: HELLO_BYTES,
      type: protocol.constant('FRAME_HELLO'),
      request_id: 0,
    });
    expect(read(hello, emitted)).toMatchObject({
      magic: protocol.constant('IPC_MAGIC'),
      version: protocol.constant('IPC_VERSION'),
      role: protocol.constant('ROLE_UVERBS'),
    });
    expect(hello.fields.get('token')).toEqual({ offset: emitted.indexOf(9), bytes: TOKEN_BYTES });
    const welcome = emitWelcome({ errno: 13, daemonPid: 99, token, text: 'no' });
    const head = protocol.struct('welcome_head');
    expect(welcome).toHaveLength(FRAME_HEADER_BYTES + head.bytes + 2);
    expect(read(head, welcome, FRAME_HEADER_BYTES)).toEqual({
      magic: protocol.constant('IPC_MAGIC'),
      version: IPC_VERSION,
      zero: 0,
      error: 13,
      pid: 99,
    });
    expect(head.fields.get('token')?.offset).toBe(welcome.indexOf(9) - FRAME_HEADER_BYTES);
  });

  it('has the same roles, frames, operations and flags', () => {
    expectMembers(protocol.members('role'), 'ROLE_', { ...Role, cm: Role.rdmaCm });
    expectMembers(protocol.members('frame_type'), 'FRAME_', FrameType);
    expectMembers(protocol.members('operation'), 'OP_', ShimOp);
    expectMembers(protocol.members('agent_operation'), 'AGENT_', AgentOperation);
    expect(protocol.constant('REQUEST_ONE_WAY')).toBe(RequestFlag.oneWay);
    expect(protocol.constant('REQUEST_EXPLAIN')).toBe(RequestFlag.explain);
    expect(protocol.constant('REPLY_TAKE_BYTE')).toBe(ReplyFlag.takeByte);
    expect(protocol.constant('REPLY_PURGED')).toBe(ReplyFlag.purged);
    expect(protocol.constant('REPLY_START_AGENT')).toBe(ReplyFlag.startAgent);
    expect(protocol.constant('REPLY_REASONS')).toBe(ReplyFlag.reasons);
    expect(protocol.constant('REQUEST_PAYLOAD_MAX')).toBe(REQUEST_PAYLOAD_MAX_BYTES);
  });

  it('has the same requests and replies', () => {
    const head = protocol.struct('request_head');
    const values = {
      length_bytes: head.bytes,
      operation: 6,
      flags: 1,
      pid: 3,
      request_id: 4,
      argument: 2 ** 33,
    };
    const requests: ShimRequest[] = [];
    new RequestReader((request) => requests.push({ ...request })).push(write(head, values));
    expect(requests).toMatchObject([{ op: 6, flags: 1, pid: 3, id: 4, argument: 2 ** 33 }]);
    const handles = protocol.constant('ARM_HANDLES');
    const seen = 5 * 2 ** protocol.constant('ARM_SEEN_SHIFT');
    expect(armRequest(handles - 1 + seen)).toEqual({ handle: handles - 1, seen: 5 });
    const response = new Uint8Array(8);
    const reply = emitReply(4, { status: 2, response, descriptors: [{ offset: 4, token }] });
    const replyHead = protocol.struct('reply_head');
    expect(read(replyHead, reply)).toEqual({
      length_bytes: reply.length,
      status: 2,
      request_id: 4,
      flags: 0,
      response_bytes: 8,
      descriptor_count: 1,
    });
    const descriptor = protocol.struct('reply_descriptor');
    expect(reply).toHaveLength(replyHead.bytes + 8 + descriptor.bytes);
    expect(read(descriptor, reply, replyHead.bytes + 8)).toEqual({ offset: 4 });
  });

  it('has the same requests to the agent', () => {
    const request = protocol.struct('agent_request');
    const values = { operation: 2, id: 5, address: 2 ** 40 + 3, length: 6, zero: 0 };
    const bytes = new Uint8Array(AGENT_REQUEST_BYTES);
    emitAgentRequest(values, bytes);
    expect(request.bytes).toBe(bytes.length);
    expect(read(request, bytes)).toEqual(values);
    const reply = protocol.struct('agent_reply');
    expect(reply.bytes).toBe(AGENT_REPLY_BYTES);
    const answer = write(reply, { id: 5, error: 14, length: 6 });
    expect(parseAgentReply(answer)).toEqual({ id: 5, errno: 14, length: 6 });
    expect(protocol.constant('AGENT_TRANSFER_MAX')).toBe(AGENT_TRANSFER_MAX_BYTES);
  });
});

describe('memory that the preload library and the daemon share', () => {
  it("has siw's queues", () => {
    const queues = inC('queue-flush.c');
    expect({
      SEND_ELEMENT_BYTES: queues.constant('SEND_ELEMENT_BYTES'),
      RECEIVE_ELEMENT_BYTES: queues.constant('RECEIVE_ELEMENT_BYTES'),
      COMPLETION_BYTES: queues.constant('COMPLETION_BYTES'),
      COMPLETION_TAIL_BYTES: queues.constant('COMPLETION_TAIL_BYTES'),
      SEND_TAIL_BYTES: queues.constant('SEND_TAIL_BYTES'),
      PAGE_BYTES: queues.constant('PAGE_BYTES'),
      SEND_OPCODE_OFFSET: queues.constant('SEND_OPCODE_OFFSET'),
      COMPLETION_OPCODE_OFFSET: queues.constant('COMPLETION_OPCODE_OFFSET'),
      COMPLETION_STATUS_OFFSET: queues.constant('COMPLETION_STATUS_OFFSET'),
      COMPLETION_QPN_OFFSET: queues.constant('COMPLETION_QPN_OFFSET'),
      FLAG_VALID: queues.constant('FLAG_VALID'),
      OPCODE_SEND: queues.constant('OPCODE_SEND'),
      OPCODE_RECEIVE: queues.constant('OPCODE_RECEIVE'),
      STATUS_FLUSHED: queues.constant('STATUS_FLUSHED'),
    }).toEqual({
      SEND_ELEMENT_BYTES: SQE_BYTES,
      RECEIVE_ELEMENT_BYTES: RQE_BYTES,
      COMPLETION_BYTES: CQE_BYTES,
      COMPLETION_TAIL_BYTES: cqBytes(0),
      SEND_TAIL_BYTES: SEND_WORDS_BYTES,
      PAGE_BYTES,
      SEND_OPCODE_OFFSET: SQE.opcode,
      COMPLETION_OPCODE_OFFSET: CQE.opcode,
      COMPLETION_STATUS_OFFSET: CQE.status,
      COMPLETION_QPN_OFFSET: CQE.qpn,
      FLAG_VALID: QueueFlag.valid,
      OPCODE_SEND: SQOpcode.send,
      OPCODE_RECEIVE: SQOpcode.receive,
      STATUS_FLUSHED: CQEStatus.wrFlushErr,
    });
    const flags = queues.constant('ELEMENT_FLAGS_OFFSET');
    expect([SQE.flags, RQE.flags, CQE.flags]).toEqual([flags, flags, flags]);
    expect([SQE.wrId, RQE.wrId, CQE.wrId]).toEqual([0, 0, 0]);
  });

  /** `const NAME = 1;` or `= 4 / 4;` of a source of the daemon, with units of `bytes`. */
  const inDaemon = (path: string, name: string, bytes = 1): number => {
    const [, value = Number.NaN, divisor] =
      new RegExp(`^(?:export )?const ${name} = (\\d+)(?: / (\\d+))?;`, 'm').exec(textOf(path)) ??
      [];
    return (Number(value) / Number(divisor ?? 1)) * bytes;
  };

  it.each([
    ['LOG2_OFFSET', 'LOG2_AT', 1],
    ['MASK_OFFSET', 'MASK_AT', 1],
    ['PRODUCER_OFFSET', 'PRODUCER', 4],
    ['SHOWN_OFFSET', 'SHOWN', 4],
    ['SHOWN_OFFSET', 'COMPLETED', 4],
    ['CONSUMER_OFFSET', 'CONSUMER', 4],
    ['SEEN_OFFSET', 'SEEN', 4],
    ['SLOTS_OFFSET', 'HEADER_BYTES', 1],
  ])("has rings with rxe's %s", (inLibrary, name, bytes) => {
    const found = inDaemon('daemon/rnic/rings/index-ring.ts', name, bytes);
    expect(inC('index-ring.c').constant(inLibrary)).toBe(found);
  });

  it('has rings of events', () => {
    const ring = inC('event-ring.c');
    const path = 'daemon/kernel/event-ring.ts';
    expect(ring.constant('RING_BYTES')).toBe(EVENT_RING_BYTES);
    expect(ring.constant('RECORDS')).toBe(EVENT_RING_RECORDS);
    expect(ring.constant('INDEX_BITS')).toBe(inDaemon(path, 'INDEX_BITS'));
    expect(ring.constant('RECORDS_OFFSET')).toBe(inDaemon(path, 'RECORDS_OFFSET'));
  });

  it('has words after send queues', () => {
    const path = 'daemon/kernel/uverbs/send-words.ts';
    const end = SEND_WORDS_BYTES;
    const doorbell = inC('doorbell.c').constant('WORD_BEFORE_END');
    expect(doorbell).toBe(end - 4 * inDaemon(path, 'DOORBELL'));
    const progress = inC('queue-flush.c').constant('PROGRESS_BEFORE_END');
    expect(progress).toBe(end - 4 * inDaemon(path, 'PROGRESS'));
  });

  it('is reached by the same device numbers', () => {
    const nodes = inC('device-node.c');
    const path = 'daemon/kernel/nldev/devices.ts';
    for (const name of ['UVERBS_MAJOR', 'UVERBS_MINOR_FIRST']) {
      expect(nodes.constant(name), name).toBe(inDaemon(path, name));
    }
    const shown = inDaemon('daemon/host/device-config.ts', 'SHOWN_DEVICES_MAX');
    expect(nodes.constant('UVERBS_COUNT')).toBe(shown);
    const [major, minor] = [nodes.constant('CM_MAJOR'), nodes.constant('CM_MINOR')];
    expect({ major, minor }).toEqual(RDMA_CM_NUMBER);
  });
});
