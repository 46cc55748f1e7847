/**
 * Runs in a guest: the transport of the kernel's SCTP, first with both ends in this process, then
 * with a peer that breaks DDP's rules. Prints the notifications.
 */
import { execFileSync } from 'node:child_process';
import { hostSystem } from '#daemon/host/links/system';
import { type Association, MESSAGE_MAX_BYTES } from '#daemon/host/sctp/association';
import { KernelSctpTransport } from '#daemon/host/sctp/kernel-transport';
import { KernelSctpSocket } from '../support/kernel-sctp.ts';
import { quiet } from '../support/patience.ts';
import { AssociationRecorder, type RecordedEnd, SEGMENT, until } from '../support/sctp-pair.ts';

const A = '127.0.0.2';
const B = '127.0.0.3';
const PORT = 7174;
const DDP = 1;
const MESSAGES = 400;
const CONTROL = { payloadProtocol: 17, unordered: true, acknowledgeAtOnce: true };
const ORDERED = { payloadProtocol: 16, unordered: false, acknowledgeAtOnce: false };

const say = (text: string): void => {
  process.stdout.write(`${text}\n`);
};
const pause = (ms = 2): Promise<void> => quiet(ms);

function used(association: Association): RecordedEnd {
  const user = new AssociationRecorder();
  association.user = user;
  return { association, user };
}

const { clock } = hostSystem();
const transport = new KernelSctpTransport(clock, false);
const keepAlive = setInterval(() => {}, 1000);
const options = { adaptation: DDP, streamCount: 4 };
for (const address of [A, B]) transport.open(address);
const listener = transport.hold({ address: B, port: PORT }, options);
let arrived: RecordedEnd[] = [];
listener.listen((association) => arrived.push(used(association)));

/** Resolves with the next association. */
async function next(): Promise<RecordedEnd> {
  await until('an association comes', () => arrived.length > 0);
  const [end] = arrived;
  arrived = arrived.slice(1);
  return end as RecordedEnd;
}

async function pair(port = 0): Promise<readonly [RecordedEnd, RecordedEnd]> {
  const held = transport.hold({ address: A, port }, options);
  let mine: RecordedEnd | undefined;
  const failed = (code: string, text: string): void => say(`failed: ${code} ${text}`);
  held.open(
    { address: B, port: PORT },
    (association) => {
      mine = used(association);
    },
    failed,
  );
  const theirs = await next();
  await until('ours is up', () => mine !== undefined);
  held.release();
  return [mine as unknown as RecordedEnd, theirs];
}

async function endOf({ user }: RecordedEnd): Promise<string> {
  await until('the association ends', () => user.end !== undefined);
  return `${user.end?.kind} ${user.end?.code}`;
}

/** A plain kernel socket as a peer of our end. */
async function stranger(adaptation: number | undefined, port = 0): Promise<KernelSctpSocket> {
  const socket = KernelSctpSocket.open(A, port, adaptation);
  socket.connect(B, PORT);
  await pause(200);
  return socket;
}

say('# messages');
let [mine, theirs] = await pair();
const { association } = mine;
say(`indications ${association.peerAdaptation} ${theirs.association.peerAdaptation}`);
say(`streams ${association.streamCount} ${theirs.association.streamCount}`);
say(
  `ends ${association.remote.address} ${association.remote.port} ${theirs.association.remote.address}`,
);
const longest = association.messageMaxBytes;
say(`longest ${longest > 60_000 && longest <= 65_535}`);
/** A third of them have the maximum length: more than the window and the buffer together. */
const lengthOf = (index: number): number => (index % 3 === 0 ? longest : 4 + index * 97);
let sent = 0;
let blocked = 0;
const kinds = [SEGMENT, CONTROL, ORDERED];
const give = (): void => {
  while (sent < MESSAGES) {
    const bytes = Buffer.alloc(lengthOf(sent));
    bytes.writeUInt16BE(sent);
    const kind = kinds[sent % kinds.length] as (typeof kinds)[number];
    if (!association.send(sent % 4, kind, bytes)) {
      blocked += 1;
      return;
    }
    sent += 1;
  }
};
mine.user.onWritable = give;
// The waiting messages exceed window and buffer.
theirs.association.pauseReading();
give();
await pause(300);
say(`waits ${blocked > 0} ${theirs.user.messages.length}`);
theirs.association.resumeReading();
await until('all messages', () => theirs.user.messages.length === MESSAGES);
const wrong = theirs.user.messages.filter(({ streamId, payloadProtocol, unordered, bytes }) => {
  const index = Buffer.from(bytes).readUInt16BE();
  const kind = kinds[index % kinds.length] as (typeof kinds)[number];
  return (
    bytes.length !== lengthOf(index) ||
    streamId !== index % 4 ||
    payloadProtocol !== kind.payloadProtocol ||
    unordered !== kind.unordered
  );
});
say(`wrong ${wrong.length}`);
await until('acknowledged', () => !association.unacknowledged);
say(`acknowledged ${mine.user.events.includes('acknowledged')}`);
association.send(0, CONTROL, new Uint8Array(MESSAGE_MAX_BYTES));
await until('a fragmented one', () => theirs.user.messages.length === MESSAGES + 1);
say(`fragmented ${theirs.user.messages.at(-1)?.bytes.length === MESSAGE_MAX_BYTES}`);
association.shutdown();
say(`shutdown: ${await endOf(mine)}, ${await endOf(theirs)}`);

say('# a narrower path');
[mine, theirs] = await pair();
execFileSync('ip', ['link', 'set', 'lo', 'mtu', '9000']);
const { association: narrowed, user } = mine;
// The kernel notices when it sends; the next message is too long then.
let given = 0;
await until('the path is narrower', () => {
  if (narrowed.send(0, SEGMENT, new Uint8Array(longest))) given += 1;
  return user.events.includes('path');
});
await until('the messages are there', () => theirs.user.messages.length === given);
const taken = theirs.user.messages.every(({ bytes }) => bytes.length === longest);
const now = narrowed.messageMaxBytes;
say(`longest ${now > 8900 && now < 9000}, taken ${taken}`);
execFileSync('ip', ['link', 'set', 'lo', 'mtu', '65536']);
narrowed.abort();
say(`abort: ${await endOf(theirs)}`);

say('# refusals');
const other = transport.hold({ address: A, port: 5000 }, options);
try {
  transport.hold({ address: A, port: 5000 }, options);
} catch (error) {
  say(`held: ${(error as { code: string }).code}`);
}
let refused = '';
other.open(
  { address: B, port: 5001 },
  () => {},
  (code) => {
    refused = code;
  },
);
await until('a refusal', () => refused !== '');
say(`no listener: ${refused}`);
const foreign = KernelSctpSocket.open(B, 5002, 7);
foreign.listen();
refused = '';
other.open(
  { address: B, port: 5002 },
  () => {},
  (code, text) => {
    refused = `${code}, ${text}`;
  },
);
await until('a refusal', () => refused !== '');
say(`another indication: ${refused}`);
foreign.close();
other.release();
(await stranger(undefined)).close();
(await stranger(7)).close();
await pause(200);
say(`strangers delivered: ${arrived.length}`);

say('# a peer that sends more than a message may have');
let peer = await stranger(DDP);
let end = await next();
const kind = { streamId: 0, payloadProtocol: 16, unordered: true };
while (!peer.send({ ...kind, bytes: new Uint8Array(MESSAGE_MAX_BYTES + 1) })) await pause();
say(`too long: ${await endOf(end)}, messages ${end.user.messages.length}`);
peer.close();

say('# a message in parts');
peer = await stranger(DDP);
end = await next();
// More than the window: the kernel delivers the parts that it has.
end.association.pauseReading();
let parts = 0;
for (; parts < 400 && peer.send({ ...kind, bytes: new Uint8Array(65_000).fill(parts) }); )
  parts += 1;
await pause(300);
end.association.resumeReading();
await until('all of them', () => end.user.messages.length === parts);
// Retransmitted messages arrive later: they are unordered.
const firstBytes = end.user.messages.map(({ bytes }) => bytes[0] ?? -1);
const inOrder = (numbers: readonly number[]): string => numbers.toSorted((a, b) => a - b).join();
const everyOne = Array.from({ length: parts }, (_, index) => index & 0xff);
const whole =
  inOrder(firstBytes) === inOrder(everyOne) &&
  end.user.messages.every(({ bytes }) => {
    return bytes.length === 65_000 && bytes.every((byte) => byte === bytes[0]);
  });
say(`parts: ${parts > 10} ${whole}`);
peer.abort();
say(`abort: ${await endOf(end)}`);

say('# a forged payload protocol');
peer = await stranger(DDP);
end = await next();
peer.send({
  streamId: 3,
  payloadProtocol: 0xffff_ffff,
  unordered: false,
  bytes: new Uint8Array(1),
});
await until('it is delivered as it is', () => end.user.messages.length === 1);
say(`protocol ${end.user.messages[0]?.payloadProtocol}, stream ${end.user.messages[0]?.streamId}`);
peer.abort();
await endOf(end);

say('# an association that starts over');
peer = await stranger(DDP, 5003);
end = await next();
execFileSync('tc', ['qdisc', 'add', 'dev', 'lo', 'root', 'netem', 'loss', '100%']);
peer.abort();
await pause(100);
execFileSync('tc', ['qdisc', 'del', 'dev', 'lo', 'root']);
peer = await stranger(DDP, 5003);
say(`again: ${await endOf(end)}`);
peer.close();

say('# in UDP, with both ends shown as they are');
execFileSync('sysctl', ['-qw', 'net.sctp.udp_port=9899']);
const inUdp = new KernelSctpTransport(clock, true);
const shown = new Set<string>();
inUdp.observe({
  watched: true,
  packet(way, place, _peer, peerPort) {
    shown.add(`${place.address}:${place.port} ${way} ${peerPort}`);
  },
});
for (const address of [A, B]) inUdp.open(address);
const udpListener = inUdp.hold({ address: B, port: PORT + 1 }, options);
udpListener.listen((up) => arrived.push(used(up)));
const udpDialer = inUdp.hold({ address: A, port: 0 }, options);
udpDialer.open(
  { address: B, port: PORT + 1 },
  (up) => used(up).association.send(0, SEGMENT, Uint8Array.of(1)),
  (code, text) => say(`failed: ${code} ${text}`),
);
end = await next();
await until('the message', () => end.user.messages.length === 1);
say([...shown].toSorted().join(', '));
end.association.abort();
udpDialer.release();
udpListener.release();
execFileSync('sysctl', ['-qw', 'net.sctp.udp_port=0']);

listener.release();
clearInterval(keepAlive);
setTimeout(() => process.exit(0), 100);
