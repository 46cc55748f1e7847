/**
 * For a guest: an association between libusrsctp and the kernel's SCTP, over UDP on loopback, both ends
 * in this process. Prints the options given to the kernel and the outcome of the messages.
 *
 *   sctp-kernel-ends.js MESSAGES   this many from libusrsctp, each echoed by the kernel
 */
import { hostSystem } from '#daemon/host/links/system';
import type { Association, AssociationUser } from '#daemon/host/sctp/association';
import { UsrsctpTransport } from '#daemon/host/sctp/usrsctp-transport';
import { KernelSctpSocket } from '../support/kernel-sctp.ts';
import { quiet, until } from '../support/patience.ts';

const OURS = '127.0.0.2';
const KERNEL = '127.0.0.1';
const DDP = 1;
const count = Number(process.argv[2]);

const say = (text: string): void => {
  process.stdout.write(`${text}\n`);
};
const pause = (): Promise<void> => quiet(2);

/** Checks that each echo equals its message. */
class Echoes implements AssociationUser {
  echoes = 0;
  wrong = 0;
  ended = '';
  writable = true;
  readonly #sent = new Map<number, Buffer>();

  send(association: Association, index: number): boolean {
    const longest = association.messageMaxBytes;
    const length = index % 7 === 0 ? longest : 4 + ((index * 997) % 3000);
    const bytes = Buffer.alloc(length, index & 0xff);
    bytes.writeUInt32BE(index, 0);
    const kind = {
      payloadProtocol: index % 5 === 0 ? 17 : 16,
      unordered: index % 3 !== 0,
      acknowledgeAtOnce: false,
    };
    if (!association.send(index % association.streamCount, kind, bytes)) return false;
    this.#sent.set(index, bytes);
    return true;
  }

  handleMessage(
    streamId: number,
    payloadProtocol: number,
    unordered: boolean,
    bytes: Uint8Array,
  ): void {
    const index = Buffer.from(bytes).readUInt32BE(0);
    const sent = this.#sent.get(index);
    this.#sent.delete(index);
    this.echoes += 1;
    const asSent =
      sent?.equals(bytes) === true &&
      streamId === index % 4 &&
      payloadProtocol === (index % 5 === 0 ? 17 : 16) &&
      unordered === (index % 3 !== 0);
    if (!asSent) this.wrong += 1;
  }

  handleWritable(): void {
    this.writable = true;
  }

  handleAcknowledged(): void {}
  handlePathChanged(): void {}
  handlePeerShutdown(): void {}

  handleEnded({ kind, code }: { readonly kind: string; readonly code: string | undefined }): void {
    this.ended = `${kind} ${code}`;
  }
}

/** Echoes messages until the association ends; prints events. */
async function echo(socket: KernelSctpSocket, isOver: () => boolean): Promise<void> {
  let dry = 0;
  while (!isOver()) {
    const received = socket.receive();
    if (received === undefined) {
      await pause();
    } else if (received.type === 'message') {
      if (!received.message.whole) say('kernel: a part of a message');
      while (!socket.send(received.message)) await pause();
    } else if (received.type === 'event') {
      if (received.text === 'dry') dry += 1;
      // The kernel may show the end of a socket before it reports this.
      else if (!received.text.startsWith('shutdown complete')) say(`kernel: ${received.text}`);
    } else {
      say(`kernel: ${received.type}`);
      break;
    }
  }
  say(`kernel: dry ${dry > 0}`);
}

async function exchange(association: Association, user: Echoes): Promise<void> {
  let next = 0;
  await until('all echoes', () => {
    while (user.writable && next < count) {
      if (user.send(association, next)) next += 1;
      else user.writable = false;
    }
    return user.echoes === count;
  });
  say(`ours: ${user.echoes} echoes, ${user.wrong} wrong`);
  say(`ours: indication ${association.peerAdaptation}, ${association.streamCount} streams`);
}

const { clock } = hostSystem();
const transport = new UsrsctpTransport(clock, { own: 9898 });
const options = { adaptation: DDP, streamCount: 4 };
const keepAlive = setInterval(() => {}, 1000);

say('# ours opens, and shuts down');
const listener = KernelSctpSocket.open(KERNEL, 5000, DDP);
listener.listen();
const ours = transport.hold({ address: OURS, port: 6000 }, options);
const user = new Echoes();
let association: Association | undefined;
const isUp = (end: Association) => {
  end.user = user;
  association = end;
};
ours.open({ address: KERNEL, port: 5000 }, isUp, (code, text) => say(`ours: ${code} ${text}`));
let accepted: KernelSctpSocket | undefined;
await until('the kernel has accepted', () => {
  accepted ??= listener.accept();
  return accepted !== undefined && association !== undefined;
});
const echoing = echo(accepted as KernelSctpSocket, () => false);
await exchange(association as unknown as Association, user);
(association as unknown as Association).shutdown();
await echoing;
(accepted as unknown as KernelSctpSocket).close();
await until('ours has ended', () => user.ended !== '');
say(`ours: ${user.ended}`);

say('# the kernel opens, and aborts');
const second = new Echoes();
association = undefined;
const passive = transport.hold({ address: OURS, port: 7174 }, options);
passive.listen((end) => {
  end.user = second;
  association = end;
});
const dialling = KernelSctpSocket.open(KERNEL, 5001, DDP);
dialling.connect(OURS, 7174);
let isOver = false;
const echoingAgain = echo(dialling, () => isOver);
await until('ours has accepted', () => association !== undefined);
await exchange(association as unknown as Association, second);
isOver = true;
await echoingAgain;
dialling.abort();
await until('ours has ended', () => second.ended !== '');
say(`ours: ${second.ended}`);

say('# the kernel opens without an indication');
const strange = KernelSctpSocket.open(KERNEL, 5002, undefined);
strange.connect(OURS, 7174);
await echo(strange, () => false);
strange.close();

passive.release();
ours.release();
listener.close();
clearInterval(keepAlive);
setTimeout(() => process.exit(0), 100);
