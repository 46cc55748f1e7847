import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const folder = fileURLToPath(new URL('../../../dist/native-bridge/libc/', import.meta.url));

describe('a watch', () => {
  it.each([
    ['watchSocket', 'in time', ''],
    ['watchSocket', 'by process.exit', 'process.exit(0)'],
    ['watchDescriptor', 'by process.exit', 'process.exit(0)'],
  ])(
    '%s ends with its process, which ends %s while there is something to read',
    (watch, _, end) => {
      const program = `
      const { openUdp } = await import(${JSON.stringify(`${folder}udp-socket.js`)});
      const watches = await import(${JSON.stringify(`${folder}watched-descriptor.js`)});
      const { createSocket } = await import('node:dgram');
      const { fd } = openUdp('127.91.7.3', 7999, 65536);
      watches.${watch}(fd, () => {});
      const sender = createSocket('udp4');
      sender.send('unread', 7999, '127.91.7.3', () => { sender.close(); ${end} });`;
      const { status, stderr } = spawnSync(
        process.execPath,
        ['--input-type=module', '-e', program],
        { encoding: 'utf8' },
      );
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    },
  );
});
