/**
 * The baseline of DDP over SCTP: messages of the same length through the same library, transport and
 * event loop, with nothing on top. Run as a worker of the bench.
 */
import { performance } from 'node:perf_hooks';
import { hostSystem } from '../host/links/system.ts';
import type { Association, MessageKind } from '../host/sctp/association.ts';
import { NO_USER } from '../host/sctp/socket-association.ts';
import { UsrsctpTransport } from '../host/sctp/usrsctp-transport.ts';
import { serveCalls } from './channel.ts';

const OPTIONS = { adaptation: 1, streamCount: 1 };
const KIND: MessageKind = { payloadProtocol: 16, unordered: true, acknowledgeAtOnce: false };

const transport = new UsrsctpTransport(hostSystem().clock);

let received: Promise<number> | undefined;

const methods = {
  /** Accepts one association; returns the port. */
  sink({ address }: { address: string }): number {
    const port = transport.hold({ address, port: 0 }, OPTIONS);
    received = new Promise((resolve) => {
      port.listen((association) => {
        let bytes = 0;
        association.user = {
          ...NO_USER,
          handleMessage: (_streamId, _protocol, _unordered, message) => {
            bytes += message.length;
          },
          handleEnded: () => {
            port.release();
            resolve(bytes);
          },
        };
      });
    });
    return port.port;
  },

  /** Bytes received, once the association has ended. */
  async received(_: undefined): Promise<number> {
    return (await received) ?? 0;
  },

  /** Sends this many bytes, in messages of the maximum length; returns seconds until all have arrived. */
  async stream(argument: {
    from: string;
    to: string;
    port: number;
    totalBytes: number;
  }): Promise<number> {
    const { from, to, port, totalBytes } = argument;
    const held = transport.hold({ address: from, port: 0 }, OPTIONS);
    try {
      return await new Promise<number>((resolve, reject) => {
        held.open(
          { address: to, port },
          (association) => send(association, totalBytes, resolve),
          (code, text) => reject(new Error(`${code}: ${text}`)),
        );
      });
    } finally {
      held.release();
    }
  },
};

export type RawSctpMethods = typeof methods;

function send(association: Association, totalBytes: number, done: (seconds: number) => void): void {
  const message = Buffer.alloc(association.messageMaxBytes, 0x5a);
  const start = performance.now();
  let left = totalBytes;
  const pump = (): void => {
    while (left > 0) {
      const part = left < message.length ? message.subarray(0, left) : message;
      if (!association.send(0, KIND, part)) return;
      left -= part.length;
    }
  };
  association.user = {
    ...NO_USER,
    handleWritable: pump,
    handleAcknowledged: () => {
      if (left > 0) return;
      done((performance.now() - start) / 1000);
      association.shutdown();
    },
  };
  pump();
}

serveCalls(methods);
