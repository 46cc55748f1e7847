import { describe, expect, expectTypeOf, it } from 'vitest';
import { createEmbedded, type EmbeddedProvider } from '../../daemon/embedded/embedded-provider.ts';
import { createNative } from '../../native-bridge/provider/native-provider.ts';
import type { FaultControl } from '../../verbs-api/contract/faults.ts';
import type {
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
} from '../../verbs-api/index.ts';
import * as api from '../../verbs-api/index.ts';
import * as testing from '../../verbs-api/testing/index.ts';

/** What programs may rely on. The compiler checks the types when the tests are built. */
describe('the public surface', () => {
  it('exports these values and no others', () => {
    expect(Object.keys(api).sort()).toEqual([
      'Access',
      'AsyncEventType',
      'CMEventType',
      'ConnectionRejectedError',
      'DaemonControl',
      'ERRNO',
      'MWType',
      'QPState',
      'SendFlag',
      'VerbsError',
      'WCFlag',
      'WCOpcode',
      'WCStatus',
      'WC_STATUS_TEXT',
      'WROpcode',
      'connect',
      'connectDaemon',
      'incRkey',
      'isErrnoCode',
      'isVerbsError',
      'listen',
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

  it('gives one and the same interface with and without a daemon', () => {
    expectTypeOf(api.connectDaemon).returns.resolves.toEqualTypeOf<Provider>();
    expectTypeOf(createEmbedded).returns.resolves.toEqualTypeOf<EmbeddedProvider>();
    expectTypeOf<EmbeddedProvider>().toExtend<Provider & FaultControl>();
    expectTypeOf(createNative).returns.resolves.toEqualTypeOf<Provider>();
    expectTypeOf(api.connect).parameter(0).toEqualTypeOf<Provider>();
    expectTypeOf(api.connect).returns.resolves.toEqualTypeOf<Connection>();
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

  it('takes addresses as numbers or bigints, and an AbortSignal wherever it waits', () => {
    expectTypeOf<SGE['addr']>().toEqualTypeOf<number | bigint>();
    expectTypeOf<SendWR['opcode']>().toEqualTypeOf<WROpcode>();
    expectTypeOf<AbortSignal>().toExtend<api.CancelSignal>();
    expectTypeOf<typeof api.WROpcode.rdmaWrite>().toEqualTypeOf<0>();
  });

  it('has errors with errno codes', () => {
    expectTypeOf<VerbsError['code']>().toEqualTypeOf<api.ErrnoCode>();
    expectTypeOf<ConnectionRejectedError>().toExtend<VerbsError>();
    expectTypeOf<'EBUSY'>().toExtend<api.ErrnoCode>();
    expectTypeOf<'ENOTHING'>().not.toExtend<api.ErrnoCode>();
  });
});
