/** Descriptors that were sent to clients, some of which read faster than the daemon looks. */
import { openSync, readSync } from 'node:fs';
import { afterEach, expect, it, vi } from 'vitest';
import { Connection } from '../../../daemon/ipc/connection.ts';
import { DescriptorsInFlight } from '../../../daemon/ipc/descriptors-in-flight.ts';
import { closeDescriptor } from '../../../native-bridge/libc/descriptor.ts';
import { socketPair } from '../../../native-bridge/libc/unix-socket.ts';
import { SELF } from '../../support/own-process.ts';

const MESSAGE = new Uint8Array(8);
const daemon = vi.hoisted(() => ({ onSent: (): void => undefined }));

/** Something happens between a message and the next thing that the daemon does. */
vi.mock('../../../native-bridge/libc/unix-socket.ts', async (load) => {
  const actual = await load<typeof import('../../../native-bridge/libc/unix-socket.ts')>();
  const sendDescriptor = (...message: Parameters<typeof actual.sendDescriptor>): number => {
    const result = actual.sendDescriptor(...message);
    daemon.onSent();
    return result;
  };
  return { ...actual, sendDescriptor };
});

const opened: (() => void)[] = [];

afterEach(() => {
  daemon.onSent = () => undefined;
  for (const close of opened.splice(0)) close();
});

it('count those that are unread, also once a client has read the first one at once', () => {
  const inFlight = new DescriptorsInFlight(undefined);
  const [own, other] = socketPair();
  const connection = Connection.pair(own, SELF, new Uint8Array(64), 64);
  const file = openSync('/dev/null', 'r');
  opened.push(() => {
    connection.close();
    inFlight.close();
    for (const fd of [other, file]) closeDescriptor(fd);
  });
  const read = (): number => readSync(other, new Uint8Array(MESSAGE.length));
  const send = (): void => inFlight.send(connection, MESSAGE, file, 3);

  daemon.onSent = read;
  send();
  daemon.onSent = () => undefined;
  for (let count = 0; count < 3; count += 1) send();
  expect(inFlight.count).toBe(3);
  expect(send).toThrow('has not received 3 descriptors');
  read();
  send();
  expect(send).toThrow('has not received 3 descriptors');
  for (let count = 0; count < 3; count += 1) read();
  send();
  expect(inFlight.count).toBe(1);
});
