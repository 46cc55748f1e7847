/** Completions of requests posted in ERR, for devices that do not flush them. */
import { Completion, type WC } from '#contract/verbs/completion';
import { WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';

const SEND_OPCODES: Readonly<Record<WROpcode, WCOpcode>> = {
  [WROpcode.send]: WCOpcode.send,
  [WROpcode.sendWithImm]: WCOpcode.send,
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

export function flushedSend(wr: SendFields, qpNum: number): WC {
  return flushed(wr.wrId, SEND_OPCODES[wr.opcode], qpNum);
}

export function flushedReceive(wr: RecvWR, qpNum: number): WC {
  return flushed(wr.wrId, WCOpcode.recv, qpNum);
}

function flushed(wrId: number | bigint | undefined, opcode: WCOpcode, qpNum: number): WC {
  const wc = new Completion();
  wc.wrId = BigInt.asUintN(64, BigInt(wrId ?? 0));
  wc.status = WCStatus.wrFlushErr;
  wc.opcode = opcode;
  wc.qpNum = qpNum;
  return wc;
}
