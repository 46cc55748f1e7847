import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { notifyService } from '#daemon/main/service-notify';
import { sendUnixDatagram } from '#native-bridge/libc/datagram';
import { DatagramSocket } from '#test/support/datagram-socket';
import { temporaryFolder } from '#test/support/temporary-folder';

let directory: string;

beforeEach(() => {
  directory = temporaryFolder();
});
describe.each([
  ['a path', () => join(directory, 'notify')],
  ['an abstract name', () => `@iwarpd-test-${process.pid}`],
])('a datagram to %s', (_, place) => {
  it('arrives whole, one by one', () => {
    const name = place();
    const receiver = new DatagramSocket(name);
    sendUnixDatagram(name, new TextEncoder().encode('one'));
    sendUnixDatagram(name, new TextEncoder().encode('two\nlines'));
    expect(receiver.receive()).toBe('one');
    expect(receiver.receive()).toBe('two\nlines');
    expect(receiver.receive()).toBeUndefined();
    receiver.close();
  });

  it('notifies a service manager by sd_notify', () => {
    const name = place();
    const receiver = new DatagramSocket(name);
    expect(notifyService('ready', 'serves', { NOTIFY_SOCKET: name })).toBeUndefined();
    expect(notifyService('stopping', 'stops', { NOTIFY_SOCKET: name })).toBeUndefined();
    expect(receiver.receive()).toBe('READY=1\nSTATUS=serves\n');
    expect(receiver.receive()).toBe('STOPPING=1\nSTATUS=stops\n');
    receiver.close();
  });

  it('does not wait for a full receiver', () => {
    const name = place();
    const receiver = new DatagramSocket(name);
    const fill = () => {
      for (let sent = 0; sent < 100_000; sent += 1) sendUnixDatagram(name, new Uint8Array(512));
    };
    expect(fill).toThrow(/EAGAIN/);
    receiver.close();
  });
});

describe('a missing receiver', () => {
  it('fails the call with an error for the log', () => {
    const name = join(directory, 'nobody');
    expect(() => sendUnixDatagram(name, new Uint8Array(1))).toThrow(/ENOENT/);
    expect(notifyService('ready', 'serves', { NOTIFY_SOCKET: name })).toMatch(/ENOENT/);
    const long = `/${'x'.repeat(200)}`;
    expect(notifyService('ready', 'serves', { NOTIFY_SOCKET: long })).toMatch(/ENAMETOOLONG/);
    expect(notifyService('ready', 'serves', { NOTIFY_SOCKET: 'here' })).toMatch(/NOTIFY_SOCKET/);
  });

  it('is not contacted unless requested', () => {
    expect(notifyService('ready', 'serves', {})).toBeUndefined();
    expect(notifyService('ready', 'serves', { NOTIFY_SOCKET: '' })).toBeUndefined();
  });
});
