import { describe, expect, expectTypeOf, it } from 'vitest';
import type { FaultControl } from '#contract/protocol/faults';
import { createEmbedded, type EmbeddedProvider } from '#daemon/embedded/embedded-provider';
import type {
  AH,
  Connection,
  ConnectionRejectedError,
  Context,
  CQ,
  MR,
  PD,
  Provider,
  QP,
  QPInit,
  SendWR,
  SGE,
  VerbsError,
  WC,
  WROpcode,
} from '#verbs-api/index';
import * as api from '#verbs-api/index';
import { createNative } from '#verbs-api/native/native-provider';
import * as testing from '#verbs-api/testing/index';

/** The API that programs may rely on. The compiler checks the types when the tests are built. */
describe('the public surface', () => {
  it('exports these values and no others', () => {
    expect(Object.keys(api).sort()).toEqual([
      'Access',
      'AsyncEventType',
      'CMEventType',
      'ConnectionRejectedError',
      'DaemonControl',
      'ERRNO',
      'GRH_BYTES',
      'MTU',
      'MWType',
      'OperationError',
      'QPState',
      'QPType',
      'RDMA_UDP_QKEY',
      'SendFlag',
      'VerbsError',
      'WCFlag',
      'WCOpcode',
      'WCStatus',
      'WC_STATUS_TEXT',
      'WROpcode',
      'addressGid',
      'connect',
      'connectDaemon',
      'incRkey',
      'isErrnoCode',
      'isVerbsError',
      'listen',
      'listenDatagrams',
      'openDatagrams',
      'parseGrh',
      'parseRemoteMemory',
      'resolveDatagrams',
    ]);
  });

  it('exports these values for tests and no others', () => {
    expect(Object.keys(testing).sort()).toEqual([
      'CompletionMismatchError',
      'DaemonEndedError',
      'LeakError',
      'WaitTimeoutError',
      'asyncEventLog',
      'expectCompletion',
      'startPrivateDaemon',
      'startTwoNodes',
      'waitFor',
      'withFault',
    ]);
  });

  it('has the same interface with and without a daemon', () => {
    expectTypeOf(api.connectDaemon).returns.resolves.toEqualTypeOf<Provider>();
    expectTypeOf(createEmbedded).returns.resolves.toEqualTypeOf<EmbeddedProvider>();
    expectTypeOf<EmbeddedProvider>().toExtend<Provider & FaultControl>();
    expectTypeOf(createNative).returns.resolves.toEqualTypeOf<Provider>();
    expectTypeOf(api.connect).parameter(0).toEqualTypeOf<Provider>();
    expectTypeOf(api.connect).returns.resolves.toEqualTypeOf<Connection>();
    expectTypeOf<Connection['messages']>().returns.toEqualTypeOf<
      AsyncGenerator<Uint8Array, void, undefined>
    >();
  });

  it('makes and destroys asynchronously, and posts and polls synchronously', () => {
    expectTypeOf<Context['allocPD']>().returns.toEqualTypeOf<Promise<PD>>();
    expectTypeOf<PD['createQP']>().toEqualTypeOf<(init: QPInit) => Promise<QP>>();
    expectTypeOf<PD['regMR']>().parameter(0).toEqualTypeOf<Uint8Array>();
    expectTypeOf<PD['regMR']>().returns.toEqualTypeOf<Promise<MR>>();
    expectTypeOf<QP['postSend']>().parameter(0).toEqualTypeOf<SendWR | readonly SendWR[]>();
    expectTypeOf<QP['postSend']>().returns.toBeVoid();
    expectTypeOf<CQ['poll']>().returns.toEqualTypeOf<WC[]>();
    expectTypeOf<CQ['wait']>().returns.toEqualTypeOf<Promise<WC[]>>();
  });

  it('disposes of every object with `await using`', () => {
    expectTypeOf<Provider>().toExtend<AsyncDisposable>();
    expectTypeOf<Context>().toExtend<AsyncDisposable>();
    expectTypeOf<MR>().toExtend<AsyncDisposable>();
    expectTypeOf<QP>().toExtend<AsyncDisposable>();
    expectTypeOf<Connection>().toExtend<AsyncDisposable>();
  });

  it('accepts addresses as numbers or bigints, and an AbortSignal wherever it waits', () => {
    expectTypeOf<SGE['addr']>().toEqualTypeOf<number | bigint>();
    expectTypeOf<SendWR['opcode']>().toEqualTypeOf<WROpcode>();
    expectTypeOf<AbortSignal>().toExtend<api.CancelSignal>();
  });

  it('names the fields that each opcode needs', () => {
    const remote = { remoteAddr: 0, rkey: 1 };
    const sgList = [{ addr: 0, length: 8, lkey: 1 }];
    const destination = { ah: {} as AH, remoteQpNum: 1, remoteQkey: 1 };
    const requests: SendWR[] = [
      { opcode: api.WROpcode.send, sgList, flags: api.SendFlag.fence | api.SendFlag.signaled },
      { opcode: api.WROpcode.rdmaWrite, ...remote, inlineData: new Uint8Array(1) },
      // @ts-expect-error: a Write needs rkey and remoteAddr
      { opcode: api.WROpcode.rdmaWrite, sgList },
      // @ts-expect-error: a Write needs rkey
      { opcode: api.WROpcode.rdmaWrite, sgList, remoteAddr: 0 },
      // @ts-expect-error: a Read needs remoteAddr
      { opcode: api.WROpcode.rdmaRead, sgList, rkey: 1 },
      // @ts-expect-error: an atomic needs compareAdd
      { opcode: api.WROpcode.atomicFetchAndAdd, sgList, ...remote },
      // @ts-expect-error: an atomic needs a place for the result
      { opcode: api.WROpcode.atomicFetchAndAdd, ...remote, compareAdd: 1 },
      // @ts-expect-error: compare-and-swap needs swap
      { opcode: api.WROpcode.atomicCmpAndSwap, sgList, ...remote, compareAdd: 1 },
      // @ts-expect-error: Send with Invalidate needs invalidateRkey
      { opcode: api.WROpcode.sendWithInv, sgList },
      // @ts-expect-error: Immediate Data needs immData
      { opcode: api.WROpcode.immediate },
      // @ts-expect-error: a Send with immediate data needs immData
      { opcode: api.WROpcode.sendWithImm, sgList },
      { opcode: api.WROpcode.send, ud: destination },
      // @ts-expect-error: a datagram needs the queue pair's number and key
      { opcode: api.WROpcode.send, ud: { ah: {} as AH } },
      // @ts-expect-error: a Write is not a datagram
      { opcode: api.WROpcode.rdmaWrite, ...remote, ud: destination },
      // @ts-expect-error: a bind needs its parameters
      { opcode: api.WROpcode.bindMW },
      // @ts-expect-error: a Send has no rkey
      { opcode: api.WROpcode.send, sgList, rkey: 1 },
      // @ts-expect-error: a queue pair's state is not an opcode
      { opcode: api.QPState.RTR, sgList },
      // @ts-expect-error: access rights are not send flags
      { opcode: api.WROpcode.send, flags: api.Access.localWrite },
    ];
    expect(requests).toHaveLength(18);
    const kept = { opcode: api.WROpcode.rdmaWrite, ...remote };
    expectTypeOf(kept).toExtend<SendWR>();
  });

  it('names the attributes of a queue pair, and takes a path MTU by its name', () => {
    const modify = (qp: QP) => [
      qp.modify({ state: api.QPState.INIT, pkeyIndex: 0, portNum: 1, qkey: 1 }),
      qp.modify({ pathMtu: api.MTU.mtu1024, ahAttr: { grh: { dgid: '', sgidIndex: 1 } } }),
      // @ts-expect-error: bytes are not an MTU
      qp.modify({ pathMtu: 1024 }),
      // @ts-expect-error: an address vector has a route
      qp.modify({ ahAttr: {} }),
      // @ts-expect-error: the number of the peer's queue pair is destQpNum
      qp.modify({ destQpn: 1 }),
    ];
    expect(modify).toBeTypeOf('function');
    expectTypeOf<QPInit['type']>().toEqualTypeOf<api.QPType | undefined>();
  });

  it('keeps the enums distinct', () => {
    const allocate = (pd: PD) => [
      pd.allocMR(5, api.Access.localWrite | api.Access.remoteRead),
      // @ts-expect-error: send flags are not access rights
      pd.allocMR(5, api.SendFlag.signaled),
      // @ts-expect-error: a number that is not an access bit
      pd.allocMR(5, 64),
    ];
    expect(allocate).toBeTypeOf('function');
    expectTypeOf<api.QPState>().not.toExtend<WROpcode>();
    expectTypeOf<api.WCOpcode>().not.toExtend<WROpcode>();
    expectTypeOf<api.SendFlag>().not.toExtend<api.Access>();
    expectTypeOf<api.WCStatus>().not.toExtend<api.WCOpcode>();
  });

  it('accepts undefined for every option, as exactOptionalPropertyTypes requires', () => {
    type Undefinable<T> = { [K in keyof T]-?: undefined extends T[K] ? K : never }[keyof T];
    type Optional<T> = { [K in keyof T]-?: object extends Pick<T, K> ? K : never }[keyof T];
    expectTypeOf<Optional<QPInit>>().toEqualTypeOf<Undefinable<QPInit>>();
    expectTypeOf<Optional<api.ConnectOptions>>().toEqualTypeOf<Undefinable<api.ConnectOptions>>();
    expectTypeOf<Optional<api.ListenOptions>>().toEqualTypeOf<Undefinable<api.ListenOptions>>();
    expectTypeOf<Optional<api.MROptions>>().toEqualTypeOf<Undefinable<api.MROptions>>();
  });

  it('has errors with errno codes', () => {
    expectTypeOf<VerbsError['code']>().toEqualTypeOf<api.ErrnoCode>();
    expectTypeOf<ConnectionRejectedError>().toExtend<VerbsError>();
    expectTypeOf<'EBUSY'>().toExtend<api.ErrnoCode>();
    expectTypeOf<'ENOTHING'>().not.toExtend<api.ErrnoCode>();
  });
});
