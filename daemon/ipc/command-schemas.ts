/**
 * One schema for each client request. Schemas check shapes and types; the device checks ranges and
 * fails with the errno that programs expect.
 */
import { z } from 'zod';
import type { CommandName, CommandRequest } from '#contract/protocol/commands';
import { eachNumber } from '#contract/verbs/qp-attributes';

const handle = z.int().nonnegative().max(0xffff_ffff);
const address = z.bigint();
const optional = <T extends z.ZodType>(schema: T) => z.union([schema, z.undefined()]);
const bytes = z.instanceof(Uint8Array<ArrayBufferLike>);
const empty = z.strictObject({});
const socketAddress = z.strictObject({ address: z.string().max(256), port: z.int() });

const wire = z
  .strictObject({
    mpaRevision: optional(z.literal([1, 2])),
    crc: optional(z.boolean()),
    markers: optional(z.boolean()),
    peerToPeer: optional(z.boolean()),
    fpduSize: optional(z.union([z.literal(['emss', 'large']), z.number()])),
  })
  .partial()
  // On the wire, absent and undefined mean the same; the contract has absent fields only.
  .transform((options) => {
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    return Object.fromEntries(given) as WireRequest;
  });
type WireRequest = NonNullable<CommandRequest<'cmConnect'>['wire']>;

const connection = {
  id: handle,
  qp: handle,
  privateData: bytes,
  initiatorDepth: optional(z.int()),
  responderResources: optional(z.int()),
  wire: optional(wire),
};

const capabilities = z.strictObject({
  maxSendWr: z.number(),
  maxRecvWr: z.number(),
  maxSendSge: z.number(),
  maxRecvSge: z.number(),
  maxInlineData: z.number(),
});

/** Longer than any GID as text. */
const gid = z.string().max(64);
const absent = z.number().optional();
const state = z.literal([0, 1, 2, 3, 4, 5, 6]);

const addressAttributes = z.strictObject({
  grh: z.strictObject({
    dgid: gid,
    sgidIndex: z.number(),
    flowLabel: absent,
    hopLimit: absent,
    trafficClass: absent,
  }),
  sl: absent,
  portNum: absent,
});

const pathAttributes = z.strictObject({
  ...eachNumber(absent),
  curState: state.optional(),
  ahAttr: addressAttributes.optional(),
  pathMtu: z.literal([1, 2, 3, 4, 5]).optional(),
});

const source = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('buffer'), buffer: handle, offset: z.number() }),
  z.strictObject({ kind: z.literal('process'), address }),
]);

export const COMMAND_SCHEMAS: {
  readonly [N in CommandName]: z.ZodType<CommandRequest<N>>;
} = {
  listDevices: empty,
  openDevice: z.strictObject({ name: optional(z.string().max(256)) }),
  closeDevice: z.strictObject({ context: handle }),
  queryDevice: z.strictObject({ context: handle }),
  queryPort: z.strictObject({ context: handle, port: z.number() }),
  queryGidTable: z.strictObject({ context: handle }),
  allocPD: z.strictObject({ context: handle }),
  deallocPD: z.strictObject({ pd: handle }),
  allocBuffer: z.strictObject({ lengthBytes: z.number() }),
  freeBuffer: z.strictObject({ buffer: handle }),
  regMR: z.strictObject({
    pd: handle,
    source,
    lengthBytes: z.number(),
    address: optional(address),
    iova: optional(address),
    access: z.number(),
    key: optional(z.number()),
  }),
  deregMR: z.strictObject({ mr: handle }),
  allocMW: z.strictObject({ pd: handle, type: z.literal([1, 2]) }),
  deallocMW: z.strictObject({ mw: handle }),
  createAH: z.strictObject({ pd: handle, attributes: addressAttributes }),
  destroyAH: z.strictObject({ ah: handle }),
  createCompChannel: z.strictObject({ context: handle }),
  destroyCompChannel: z.strictObject({ channel: handle }),
  createCQ: z.strictObject({ context: handle, cqe: z.number(), channel: optional(handle) }),
  destroyCQ: z.strictObject({ cq: handle }),
  createSRQ: z.strictObject({
    pd: handle,
    maxWr: z.number(),
    maxSge: z.number(),
    srqLimit: z.number(),
  }),
  modifySRQ: z.strictObject({ srq: handle, srqLimit: z.number() }),
  querySRQ: z.strictObject({ srq: handle }),
  destroySRQ: z.strictObject({ srq: handle }),
  createQP: z.strictObject({
    pd: handle,
    sendCQ: handle,
    recvCQ: handle,
    srq: optional(handle),
    capabilities,
    sqSigAll: z.boolean(),
    initialised: z.boolean().optional(),
    type: z.literal([2, 3, 4]).optional(),
  }),
  modifyQP: z.strictObject({
    qp: handle,
    state: optional(state),
    attributes: pathAttributes.optional(),
  }),
  queryQP: z.strictObject({ qp: handle }),
  attachMcast: z.strictObject({ qp: handle, gid }),
  detachMcast: z.strictObject({ qp: handle, gid }),
  destroyQP: z.strictObject({ qp: handle }),
  cmCreateId: z.strictObject({ datagrams: z.boolean().optional() }),
  cmDestroyId: z.strictObject({ id: handle }),
  cmBindAddr: z.strictObject({ id: handle, address: socketAddress }),
  cmResolveAddr: z.strictObject({
    id: handle,
    destination: socketAddress,
    source: optional(socketAddress),
    timeoutMs: z.number(),
  }),
  cmResolveRoute: z.strictObject({ id: handle }),
  cmListen: z.strictObject({ id: handle, backlog: z.int() }),
  cmConnect: z.strictObject({ ...connection, qp: optional(handle) }),
  cmAccept: z.strictObject({ ...connection, qkey: absent }),
  cmReject: z.strictObject({ id: handle, privateData: bytes }),
  cmDisconnect: z.strictObject({ id: handle }),
};

export function isCommandName(name: unknown): name is CommandName {
  return typeof name === 'string' && Object.hasOwn(COMMAND_SCHEMAS, name);
}
