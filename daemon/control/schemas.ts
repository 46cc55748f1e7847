/** Schemas of requests and replies, checked against the contract's types by the compiler. */
import { z } from 'zod';
import {
  CONNECTION_PHASES,
  type ConnectionFilter,
  type ConnectionSummary,
  type CQSummary,
  LIST_MAX,
  type MRSummary,
  type NoFields,
  type ObjectFilter,
  type QPSummary,
  type ResetReport,
} from '#contract/protocol/control';
import {
  type ClientStatus,
  type ClientUsage,
  type DaemonStatus,
  type DeviceStatus,
  LOOPBACKS,
  NETWORKS,
} from '#contract/protocol/ipc-admin';
import {
  REFUSAL_APIS,
  REFUSALS_LIST_MAX,
  REFUSALS_WAIT_MS_MAX,
  type Refusal,
  type RefusalFilter,
  type RefusalList,
  SENTENCE_MAX,
} from '#contract/protocol/refusals';
import {
  TRACE_LIMIT_MAX,
  TRACE_MS_MAX,
  TRACE_TEXT_MAX,
  type TraceRecord,
  type TraceRequest,
  type TraceSample,
} from '#contract/protocol/trace-sample';
import { LOWER_LAYERS } from '#contract/verbs/attributes';
import { QPState } from '#contract/verbs/enums';

/** Maximum length of a device name (`ibv_get_device_name`). */
const DEVICE_NAME_MAX = 63;
/** Process ids are s32; 0 means a process that the daemon cannot see. */
const PID_MAX = 2 ** 31 - 1;
/** A program's name in a request: the kernel's are shorter. */
const PROGRAM_NAME_MAX = 64;
const QP_NUMBER_MAX = 2 ** 24 - 1;

const count = z.int().nonnegative();
const counts = z.record(z.string(), z.number());
const pid = z.int().nonnegative().max(PID_MAX);
const socketAddress = z.strictObject({ address: z.string(), port: count });
const memoryTier = z.enum(['shared', 'process_vm', 'agent', 'local']);

const deviceName = z.string().min(1).max(DEVICE_NAME_MAX);

export const noFields: z.ZodType<NoFields> = z.strictObject({});

const listWindow = {
  offset: count.exactOptional(),
  limit: z.int().min(1).max(LIST_MAX).exactOptional(),
};

export const objectFilter: z.ZodType<ObjectFilter> = z.strictObject({
  device: deviceName.exactOptional(),
  pid: pid.exactOptional(),
  ...listWindow,
});

export const connectionFilter: z.ZodType<ConnectionFilter> = z.strictObject({
  device: deviceName.exactOptional(),
  ...listWindow,
});

export const deviceStatus: z.ZodType<DeviceStatus> = z.strictObject({
  device: z.strictObject({
    name: z.string(),
    backend: z.enum(['emulated', 'native']),
    transport: z.enum(['iwarp', 'roce']).exactOptional(),
    lowerLayer: z.enum(LOWER_LAYERS).exactOptional(),
    nodeGuid: z.string().regex(/^[0-9a-f]{16}$/),
    addresses: z.array(z.string()),
  }),
  portState: z.enum(['active', 'down']),
  counters: counts,
  hwCounters: counts.exactOptional(),
  linkCounters: counts.exactOptional(),
});

const clientUsage: z.ZodType<ClientUsage> = z.strictObject({
  objects: counts,
  sharedBytes: count,
  pinnedBytes: count,
  tiers: counts,
  tierReasons: z.record(z.string(), z.string()),
});

export const clientStatus: z.ZodType<ClientStatus> = z.strictObject({
  id: z.int().positive(),
  pid,
  uid: count,
  program: z.string(),
  connectedSeconds: count,
  usage: clientUsage,
});

const limitUse = z.strictObject({
  used: count,
  limit: count,
  user: z.strictObject({ uid: count, used: count, share: count }).exactOptional(),
});

export const daemonStatus: z.ZodType<DaemonStatus> = z.strictObject({
  version: z.string(),
  pid,
  uptimeSeconds: count,
  ready: z.boolean(),
  socketPath: z.string(),
  http: z
    .strictObject({
      url: z.string(),
      address: z.string(),
      port: count,
      tokenNeeded: z.boolean(),
      tokenFile: z.string().exactOptional(),
    })
    .exactOptional(),
  crcEngine: z.string(),
  network: z.enum(NETWORKS),
  loopback: z.enum(LOOPBACKS),
  memoryTiers: z.array(memoryTier),
  devices: z.array(deviceStatus),
  clients: z.array(clientStatus),
  roceAlone: z.array(socketAddress).exactOptional(),
  faults: count,
  refusals: count,
  health: z.strictObject({
    limits: z.record(z.string(), limitUse),
    logLinesDropped: count,
    longestTurnSeconds: z.number().nonnegative(),
    ended: z.array(z.strictObject({ pid, program: z.string(), at: z.iso.datetime() })),
  }),
});

const owner = {
  client: z.int().positive(),
  pid,
  program: z.string(),
  device: z.string(),
  handle: count,
};

export const qpSummary: z.ZodType<QPSummary> = z.strictObject({
  ...owner,
  qpNum: count,
  state: z.enum(Object.keys(QPState)),
  maxSendWr: count,
  maxRecvWr: count,
  srq: z.boolean(),
  sendsTaken: count,
  receivesTaken: count,
  type: z.enum(['RC', 'UC', 'UD']),
  destination: z
    .strictObject({ qpNum: count, gid: z.string(), device: z.string().exactOptional() })
    .exactOptional(),
  connection: z.strictObject({ local: socketAddress, remote: socketAddress }).exactOptional(),
});

export const mrSummary: z.ZodType<MRSummary> = z.strictObject({
  ...owner,
  key: count.exactOptional(),
  address: z
    .string()
    .regex(/^0x[0-9a-f]+$/)
    .exactOptional(),
  lengthBytes: count,
  tier: memoryTier,
});

export const cqSummary: z.ZodType<CQSummary> = z.strictObject({ ...owner, entries: count });

export const connectionSummary: z.ZodType<ConnectionSummary> = z.strictObject({
  device: z.string(),
  local: socketAddress,
  remote: socketAddress,
  role: z.enum(['initiator', 'responder']),
  phase: z.enum(CONNECTION_PHASES),
  qpNum: count.exactOptional(),
});

export const resetReport: z.ZodType<ResetReport> = z.strictObject({
  leaks: z.array(clientStatus),
  endedHolding: z.array(
    z.strictObject({
      id: z.int().positive(),
      pid,
      uid: count,
      program: z.string(),
      at: z.iso.datetime(),
      objects: counts,
    }),
  ),
  clients: count,
  connections: count,
  faults: count,
});

export const traceRequest: z.ZodType<TraceRequest> = z.strictObject({
  limit: z.int().min(1).max(TRACE_LIMIT_MAX).exactOptional(),
  ms: z.int().min(1).max(TRACE_MS_MAX).exactOptional(),
  device: deviceName.exactOptional(),
  qp: z.int().positive().max(QP_NUMBER_MAX).exactOptional(),
});

const traceRecord: z.ZodType<TraceRecord> = z.strictObject({
  micros: count,
  kind: z.enum(['wqe', 'cqe', 'mpa', 'fpdu', 'error', 'end']),
  device: z.string().exactOptional(),
  qpn: count.exactOptional(),
  peerDevice: z.string().exactOptional(),
  peerQpn: count.exactOptional(),
  link: count.exactOptional(),
  by: z.enum(['us', 'peer']).exactOptional(),
  opcode: z.string().exactOptional(),
  wrId: z
    .string()
    .regex(/^0x[0-9a-f]{1,16}$/)
    .exactOptional(),
  bytes: z.number().nonnegative().exactOptional(),
  status: z.string().exactOptional(),
  text: z.string().max(TRACE_TEXT_MAX),
});

export const traceSample: z.ZodType<TraceSample> = z.strictObject({
  records: z.array(traceRecord).max(TRACE_LIMIT_MAX),
  lost: count,
});

export const refusalFilter: z.ZodType<RefusalFilter> = z.strictObject({
  after: count.exactOptional(),
  pid: pid.exactOptional(),
  program: z.string().max(PROGRAM_NAME_MAX).exactOptional(),
  device: deviceName.exactOptional(),
  limit: z.int().min(1).max(REFUSALS_LIST_MAX).exactOptional(),
  waitMs: z.int().min(0).max(REFUSALS_WAIT_MS_MAX).exactOptional(),
});

const refusal: z.ZodType<Refusal> = z.strictObject({
  number: z.int().positive(),
  at: z.iso.datetime(),
  pid,
  uid: count,
  program: z.string(),
  api: z.enum(REFUSAL_APIS),
  verb: z.string(),
  step: z.string().exactOptional(),
  code: z.string(),
  sentence: z.string().max(SENTENCE_MAX),
  device: z.string().exactOptional(),
  objects: counts.exactOptional(),
  times: z.int().positive(),
});

export const refusalList: z.ZodType<RefusalList> = z.strictObject({
  refusals: z.array(refusal),
  last: count,
  lost: count,
});
