/**
 * The other end of a test: accepts connections, offers each some memory, and serves adverts of rping. It is
 * a plain verbs program, so the device under test may be emulated or real.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { WC } from '#contract/verbs/completion';
import { Access, CMEventType, SendFlag, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import type {
  CancelSignal,
  ConnectionId,
  Context,
  MR,
  PD,
  Provider,
  QP,
} from '#contract/verbs/provider';
import { failureText } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import {
  ADVERT_BYTES,
  ServerSequence,
  type ServerStep,
  textSizeBytes,
} from '../rping/rping-protocol.ts';
import { emitOffer, type Offer, RECEIVE_BYTES, regionBytes } from './offer.ts';

const REGION_BYTES = 65_536;
const PING_BYTES = 65_536;
const RECEIVES = 4;
const SEND_DEPTH = 4;
/** Reads and atomics in either direction. */
const DEPTH = 4;
const BACKLOG = 16;
/** How long connections may take to end after an interruption. */
const END_MS = 1000;
const RIGHTS = Access.localWrite | Access.remoteRead | Access.remoteWrite;

/** Serves every tester until `signal` fires. Throws `VerbsError` if the address cannot be listened on. */
export async function serveTarget(
  provider: Provider,
  { address, port }: { readonly address: string; readonly port: number },
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const listener = await provider.createId();
  const connections = new Set<Promise<void>>();
  try {
    await listener.bindAddr({ address, port });
    await listener.listen(BACKLOG);
    output.line(`ready: serving testers on ${address} port ${listener.localAddress?.port ?? port}`);
    for (;;) {
      const event = await listener.nextEvent({ signal });
      if (event.type !== CMEventType.connectRequest) continue;
      const served = serve(event.id, signal)
        .catch((error: unknown) => {
          // The next tester must find the target. Testers withdraw, too: that is no failure.
          if (signal.aborted || (isVerbsError(error) && error.code === 'ECONNREFUSED')) return;
          output.note(`a connection failed: ${failureText(error)}`);
        })
        .finally(() => connections.delete(served));
      connections.add(served);
    }
  } finally {
    await listener.close();
    // A connection that its tester never confirmed takes longer, and ends with the process.
    await Promise.race([Promise.all(connections), delay(END_MS, undefined, { ref: false })]);
  }
}

/** Serves one tester until its connection ends. */
async function serve(id: ConnectionId, signal: CancelSignal): Promise<void> {
  let context: Context | undefined;
  try {
    context = await id.provider.open(id.device);
    const pd = await context.allocPD();
    const cq = await context.createCQ({ cqe: 2 * (RECEIVES + SEND_DEPTH) });
    const qp = await id.createQP(pd, {
      sendCQ: cq,
      recvCQ: cq,
      maxSendWr: SEND_DEPTH,
      maxRecvWr: RECEIVES,
    });
    const region = await registerRegion(pd);
    region.buffer.set(regionBytes(0, REGION_BYTES));
    const service = new PingService(
      qp,
      await pd.allocMR(PING_BYTES, Access.localWrite),
      await pd.allocMR(RECEIVES * RECEIVE_BYTES, Access.localWrite),
    );
    const offer: Offer = {
      address: region.address,
      key: region.rkey,
      lengthBytes: REGION_BYTES,
      receives: RECEIVES,
      pingBytes: PING_BYTES,
    };
    const accepted = { initiatorDepth: DEPTH, responderResources: DEPTH };
    await id.accept({ ...accepted, privateData: emitOffer(offer) });
    const over = new AbortController();
    const ended = untilEnd(id).finally(() => over.abort());
    const stop = AbortSignal.any([over.signal, signal as AbortSignal]);
    try {
      for (;;) for (const wc of await cq.wait({ signal: stop })) service.handle(wc);
    } catch (error) {
      // Testers break connections, and then posting fails, too.
      if (!over.signal.aborted && !isVerbsError(error)) throw error;
    }
    await ended;
  } finally {
    await id.close();
    await context?.close();
  }
}

/** The offered memory; with atomics if the device supports them. */
async function registerRegion(pd: PD): Promise<MR> {
  try {
    return await pd.allocMR(REGION_BYTES, RIGHTS | Access.remoteAtomic);
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    return await pd.allocMR(REGION_BYTES, RIGHTS);
  }
}

async function untilEnd(id: ConnectionId): Promise<void> {
  for await (const { type } of id.events()) {
    if (type === CMEventType.disconnected || type === CMEventType.deviceRemoval) return;
  }
}

/** Answers adverts as rping's server does. A message of another length uses up its receive. */
class PingService {
  readonly #qp: QP;
  readonly #text: MR;
  readonly #receives: MR;
  readonly #sequence = new ServerSequence(PING_BYTES);
  #sizeBytes = 0;

  constructor(qp: QP, text: MR, receives: MR) {
    this.#qp = qp;
    this.#text = text;
    this.#receives = receives;
    for (let slot = 0; slot < RECEIVES; slot += 1) this.#postReceive(slot);
  }

  handle({ status, opcode, wrId, byteLen }: WC): void {
    // The failure ends the connection, and the event of that end reports it.
    if (status !== WCStatus.success) return;
    if (opcode === WCOpcode.recv) {
      const slot = Number(wrId);
      if (byteLen !== ADVERT_BYTES) return;
      const start = slot * RECEIVE_BYTES;
      const advert = this.#receives.buffer.slice(start, start + ADVERT_BYTES);
      this.#postReceive(slot);
      this.#follow(this.#sequence.handleReceive(advert));
    } else if (opcode === WCOpcode.rdmaRead) {
      this.#follow(this.#sequence.handleReadDone());
    } else if (opcode === WCOpcode.rdmaWrite) {
      this.#follow(this.#sequence.handleWriteDone());
    }
  }

  #postReceive(slot: number): void {
    const sge = this.#receives.sge(slot * RECEIVE_BYTES, RECEIVE_BYTES);
    this.#qp.postRecv({ wrId: slot, sgList: [sge] });
  }

  #follow(step: ServerStep): void {
    switch (step.type) {
      case 'read': {
        const { address, rkey, size } = step.source;
        this.#sizeBytes = size;
        this.#access(WROpcode.rdmaRead, size, address, rkey);
        return;
      }
      case 'write': {
        const size = textSizeBytes(this.#text.buffer.subarray(0, this.#sizeBytes));
        this.#access(WROpcode.rdmaWrite, size, step.sink.address, step.sink.rkey);
        return;
      }
      case 'go-ahead':
        // Its content has no meaning.
        this.#qp.postSend({
          opcode: WROpcode.send,
          sgList: [this.#text.sge(0, ADVERT_BYTES)],
          flags: SendFlag.signaled,
        });
        return;
      case 'fault':
        // A tester that breaks the order of adverts gets no answer.
        return;
    }
  }

  #access(
    opcode: typeof WROpcode.rdmaRead | typeof WROpcode.rdmaWrite,
    size: number,
    remoteAddr: bigint,
    rkey: number,
  ): void {
    const sgList = [this.#text.sge(0, size)];
    this.#qp.postSend({ opcode, sgList, remoteAddr, rkey, flags: SendFlag.signaled });
  }
}
