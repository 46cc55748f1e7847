import { describe, expect, it } from 'vitest';
import type { TappedPacket } from '#contract/protocol/packet-records';
import { SctpTrace } from '#daemon/capture/sctp-trace';
import type { MessageKind } from '#daemon/host/sctp/association';
import { RecordedSocket } from '#daemon/host/sctp/recorded-socket';
import { SctpRecorder } from '#daemon/host/sctp/sctp-recorder';
import {
  type AssociationSocket,
  ReceiveArea,
  type SctpEvent,
} from '#native-bridge/libc/sctp-event';
import { bytesOf } from '#test/support/hex';

const CONTROL: MessageKind = { payloadProtocol: 17, unordered: true, acknowledgeAtOnce: true };
const TERMINATE = bytesOf('0003 0004');
const UP: SctpEvent = {
  type: 'association',
  state: 'up',
  streamsIn: 16,
  streamsOut: 16,
  aborted: false,
};

/** A kernel socket scripted by a test. */
class StandIn implements AssociationSocket {
  readonly received = {
    isNotification: false,
    isEnd: true,
    streamId: 0,
    unordered: true,
    payloadProtocol: 17,
  };
  readonly writable = true;
  readonly unacknowledged = 0;
  room = true;
  incoming = new Uint8Array(0);
  event: SctpEvent = UP;

  send(_streamId: number, _kind: MessageKind, bytes: Uint8Array): number {
    return this.room ? bytes.length : -11;
  }

  receive(area: ReceiveArea, start: number): number {
    area.bytes.set(this.incoming, start);
    return this.incoming.length;
  }

  readEvent(): SctpEvent {
    return this.event;
  }

  shutdown(): void {}
  abort(): void {}
  close(): void {}
}

/** A watched end of an association between a device at 10.0.0.1 port 7 and 10.0.0.2 port 8. */
class End {
  readonly socket = new StandIn();
  readonly recorded: RecordedSocket;
  readonly #tap = { watched: true, packet: (packet: TappedPacket) => this.#keep(packet) };
  readonly #area = new ReceiveArea(70_000);
  packets: Uint8Array[] = [];

  constructor({
    dialed = true,
    udp = undefined as { local: number; remote: number } | undefined,
    places = ['10.0.0.1', '10.0.0.2'] as readonly [string, string],
    devices = [places[0]] as readonly string[],
  } = {}) {
    const recorder = new SctpRecorder(this.#tap, {
      deviceAt: (address) => (devices.includes(address) ? 'a' : undefined),
      queuePairOf: () => undefined,
    });
    const [local, remote] = dialed ? [7, 8] : [8, 7];
    this.recorded = new RecordedSocket(this.socket, recorder, {
      local: { address: places[0], port: local },
      remote: { address: places[1], port: remote },
      dialed,
      adaptation: 1,
      udp,
    });
  }

  set watched(watched: boolean) {
    this.#tap.watched = watched;
  }

  emit(event: SctpEvent): void {
    this.socket.event = event;
    this.recorded.readEvent(this.#area, 20);
  }

  rise(): void {
    this.emit(UP);
    this.emit({ type: 'adaptation', value: 1 });
  }

  take(bytes: Uint8Array, start = 0): void {
    this.socket.incoming = bytes.slice();
    this.recorded.receive(this.#area, start);
  }

  /** The packets as `decode` prints them, which reports wrong checksums. */
  get texts(): string[] {
    return this.packets.map((packet) => {
      const traced = new SctpTrace().take(packet, 0);
      return `${traced?.source} > ${traced?.destination} ${traced?.text}`;
    });
  }

  #keep({ bytes }: TappedPacket): void {
    this.packets.push(bytes.slice());
  }
}

/** The word at `at` of the SCTP packet in IPv4. */
const word = (packet: Uint8Array | undefined, at: number) => {
  const bytes = packet ?? new Uint8Array(100);
  return new DataView(bytes.buffer, bytes.byteOffset).getUint32(20 + at);
};

const HERE = '10.0.0.1:7 > 10.0.0.2:8';
const THERE = '10.0.0.2:8 > 10.0.0.1:7';

describe('messages that are recorded as packets', () => {
  it('are DATA with stream, payload protocol and flags, whole, in IP', () => {
    const end = new End();
    end.recorded.send(5, CONTROL, TERMINATE);
    const packet = end.packets[0] ?? new Uint8Array(0);
    expect(packet).toEqual(
      // Protocol 132; DATA with I, U, B and E, 20 bytes, TSN 1000, stream 5, protocol 17.
      Uint8Array.of(
        ...bytesOf('45000034 00004000 4084').subarray(0, 10),
        ...packet.subarray(10, 12),
        ...bytesOf('0a000001 0a000002 0007 0008'),
        ...packet.subarray(24, 32),
        ...bytesOf('000f 0014 000003e8 0005 0000 00000011 00030004'),
      ),
    );
    expect(end.texts).toEqual([`${HERE} SCTP DATA SSN 3 of stream 5: session Terminate`]);
    end.socket.received.unordered = false;
    end.take(TERMINATE);
    expect(end.texts[1]).toBe(`${THERE} SCTP DATA SSN 3: session Terminate, ordered`);
  });

  it('are in UDP if the kernel sends them in UDP', () => {
    const end = new End({ udp: { local: 9899, remote: 4000 } });
    end.recorded.send(0, CONTROL, TERMINATE);
    expect(end.packets[0]?.subarray(20, 24)).toEqual(bytesOf('26ab 0fa0'));
    expect(end.texts).toEqual([`${HERE} SCTP DATA SSN 3: session Terminate`]);
  });

  it('are in IPv6', () => {
    const end = new End({ places: ['fd00::1', 'fd00::2'] });
    end.recorded.send(0, CONTROL, TERMINATE);
    expect(end.texts).toEqual(['[fd00::1]:7 > [fd00::2]:8 SCTP DATA SSN 3: session Terminate']);
  });

  it('exclude messages without room, parts, and notifications', () => {
    const end = new End();
    end.socket.room = false;
    end.recorded.send(0, CONTROL, TERMINATE);
    end.socket.received.isEnd = false;
    end.take(TERMINATE.subarray(0, 2));
    expect(end.packets).toEqual([]);
    end.socket.received.isEnd = true;
    end.take(TERMINATE.subarray(2), 2);
    expect(end.texts).toEqual([`${THERE} SCTP DATA SSN 3: session Terminate`]);
    end.socket.received.isNotification = true;
    end.take(TERMINATE);
    expect(end.packets).toHaveLength(1);
  });

  it('are cut if no packet holds them', () => {
    const end = new End();
    end.recorded.send(0, CONTROL, new Uint8Array(65_537));
    end.recorded.send(0, CONTROL, TERMINATE);
    expect(end.texts).toEqual([
      `${HERE} SCTP DATA, part of a message, 65484 bytes`,
      `${HERE} SCTP DATA, part of a message, 53 bytes`,
      `${HERE} SCTP DATA SSN 3: session Terminate`,
    ]);
    // Only the first part begins it, only the last one ends it.
    expect(end.packets.map((packet) => packet[33])).toEqual([0x0e, 0x0d, 0x0f]);
    expect(end.packets.map((packet) => word(packet, 16))).toEqual([1000, 1001, 1002]);
  });

  it('count without a watcher', () => {
    const end = new End();
    end.watched = false;
    end.rise();
    end.recorded.send(0, CONTROL, new Uint8Array(65_537));
    end.take(TERMINATE);
    expect(end.packets).toEqual([]);
    end.watched = true;
    end.recorded.send(0, CONTROL, TERMINATE);
    end.take(TERMINATE);
    expect(end.packets.map((packet) => word(packet, 16))).toEqual([1002, 500_000_001]);
    expect(end.texts).not.toContain(`${HERE} SCTP INIT`);
  });

  it('lie between the packets that begin and end the association, each recorded by its sender', () => {
    const devices = ['10.0.0.1', '10.0.0.2'];
    const dialer = new End({ devices });
    const listener = new End({ devices, dialed: false, places: ['10.0.0.2', '10.0.0.1'] });
    for (const end of [listener, dialer]) {
      end.rise();
      end.recorded.send(0, CONTROL, TERMINATE);
    }
    dialer.recorded.shutdown();
    listener.emit({ type: 'shutdown' });
    for (const end of [listener, dialer]) {
      end.emit({ ...UP, state: 'shutdown-complete' });
      end.recorded.close();
    }
    expect(dialer.texts).toEqual([
      `${HERE} SCTP INIT`,
      `${HERE} SCTP DATA SSN 3: session Terminate`,
      `${HERE} SCTP SHUTDOWN`,
      `${HERE} SCTP SHUTDOWN COMPLETE`,
    ]);
    expect(listener.texts).toEqual([
      `${THERE} SCTP INIT ACK`,
      `${THERE} SCTP DATA SSN 3: session Terminate`,
      `${THERE} SCTP SHUTDOWN ACK`,
    ]);
    // An INIT has no tag; what follows it has the tag of its receiver's INIT or INIT ACK.
    const [init, ...others] = dialer.packets;
    const [initAck, ...answers] = listener.packets;
    expect(word(init, 4)).toBe(0);
    for (const packet of others) expect(word(packet, 4)).toBe(word(initAck, 16));
    for (const packet of [initAck, ...answers]) expect(word(packet, 4)).toBe(word(init, 16));
    // Streams both ways, the first TSN, and the indication.
    expect(init?.subarray(44)).toEqual(bytesOf('0010 0010 000003e8 c006 0008 00000001'));
  });

  it('end with an ABORT, of either end', () => {
    const end = new End();
    end.emit(UP);
    // No indication was received.
    end.recorded.send(0, CONTROL, TERMINATE);
    end.recorded.abort();
    const init = [`${HERE} SCTP INIT`, `${THERE} SCTP INIT ACK`];
    expect(end.texts).toEqual([
      ...init,
      `${HERE} SCTP DATA SSN 3: session Terminate`,
      `${HERE} SCTP ABORT`,
    ]);
    const other = new End();
    other.rise();
    other.emit({ ...UP, state: 'lost', aborted: true });
    other.recorded.close();
    expect(other.texts).toEqual([...init, `${THERE} SCTP ABORT`]);
  });

  it('are absent for an association that never came up', () => {
    const end = new End();
    end.emit({ ...UP, state: 'cannot-start', aborted: true });
    end.recorded.close();
    const cancelled = new End();
    cancelled.recorded.abort();
    expect([end.packets, cancelled.packets]).toEqual([[], []]);
  });
});
