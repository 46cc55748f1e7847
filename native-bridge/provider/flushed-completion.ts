/** Completions of requests that were posted in ERR, for devices that do not flush these. */
import type { WC } from '../../verbs-api/contract/completion.ts';
import { WCOpcode, WCStatus, WROpcode } from '../../verbs-api/contract/enums.ts';
import type { RecvWR, SendWR } from '../../verbs-api/contract/work-request.ts';

const SEND_OPCODES: Readonly<Record<WROpcode, WCOpcode>> = {
  [WROpcode.send]: WCOpcode.send,
  [WROpcode.sendWithInv]: WCOpcode.send,
  [WROpcode.immediate]: WCOpcode.send,
  [WROpcode.rdmaWrite]: WCOpcode.rdmaWrite,
  [WROpcode.rdmaWriteWithImm]: WCOpcode.rdmaWrite,
  [WROpcode.rdmaRead]: WCOpcode.rdmaRead,
  [WROpcode.atomicCmpAndSwap]: WCOpcode.compSwap,
  [WROpcode.atomicFetchAndAdd]: WCOpcode.fetchAdd,
  [WROpcode.localInv]: WCOpcode.localInv,
  [WROpcode.bindMW]: WCOpcode.bindMW,
};

/** The completion of a flushed send request. */
export function flushedSend(wr: SendWR, qpNum: number): WC {
  return flushed(wr.wrId, SEND_OPCODES[wr.opcode], qpNum);
}

/** The completion of a flushed receive. */
export function flushedReceive(wr: RecvWR, qpNum: number): WC {
  return flushed(wr.wrId, WCOpcode.recv, qpNum);
}

function flushed(wrId: number | bigint | undefined, opcode: WCOpcode, qpNum: number): WC {
  return {
    wrId: BigInt.asUintN(64, BigInt(wrId ?? 0)),
    status: WCStatus.wrFlushErr,
    opcode,
    byteLen: 0,
    qpNum,
    wcFlags: 0,
    immData: 0n,
    invalidatedRkey: 0,
  };
}
