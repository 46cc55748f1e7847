/** Descriptors that were sent to clients, some of which read faster than the daemon looks. */
import { openSync, readSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import { ProgramConnection } from '#daemon/clients/connection';
import { DescriptorsInFlight } from '#daemon/clients/descriptors-in-flight';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { socketPair, unreadMemory } from '#native-bridge/libc/unix-socket';
import { SELF } from '#test/support/own-process';

const MESSAGE = new Uint8Array(8);
const opened: (() => void)[] = [];

afterEach(() => {
  for (const close of opened.splice(0)) close();
});

it('count the unread ones, even after a client has read the first one at once', () => {
  const inFlight = new DescriptorsInFlight(undefined);
  const [own, other] = socketPair();
  const connection = ProgramConnection.pair(own, SELF, new Uint8Array(64), 64);
  const file = openSync('/dev/null', 'r');
  opened.push(() => {
    connection.close();
    inFlight.close();
    for (const fd of [other, file]) closeDescriptor(fd);
  });
  const read = (): number => readSync(other, new Uint8Array(MESSAGE.length));
  const send = (bytes = MESSAGE): void => inFlight.send(connection, bytes, file, 3);
  // The daemon asks for the length again once the message is sent: the client is faster.
  const readAtOnce = MESSAGE.slice();
  Object.defineProperty(readAtOnce, 'length', {
    get: () => {
      if (unreadMemory(own) > 0) read();
      return MESSAGE.length;
    },
  });

  send(readAtOnce);
  for (let count = 0; count < 3; count += 1) send();
  expect(inFlight.count).toBe(3);
  expect(() => send()).toThrow('has not received 3 descriptors');
  read();
  send();
  expect(() => send()).toThrow('has not received 3 descriptors');
  for (let count = 0; count < 3; count += 1) read();
  send();
  expect(inFlight.count).toBe(1);
});
