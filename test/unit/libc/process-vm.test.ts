import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { addressOf } from '../../../native-bridge/libc/libc.ts';
import { allowTracer, ProcessMemory, yamaScope } from '../../../native-bridge/libc/process-vm.ts';

/** This process's own memory, which needs nobody's permission. */
function own(): ProcessMemory {
  return new ProcessMemory(process.pid);
}

describe('memory of a process', () => {
  it('is read and written at any offset of the local buffers', () => {
    const memory = own();
    const remote = new Uint8Array(100_000).map((_, index) => index & 0xff);
    const address = Number(addressOf(remote));
    const local = new Uint8Array(70_000);
    expect(memory.read(address + 5, local, 9, 60_000)).toBe(true);
    expect(local.subarray(9, 60_009)).toEqual(remote.subarray(5, 60_005));
    expect(local[8]).toBe(0);
    expect(local[60_009]).toBe(0);
    const view = local.subarray(1000, 2000).fill(0xa5);
    expect(memory.write(address, view, 10, 20)).toBe(true);
    expect(remote.subarray(0, 20).every((octet) => octet === 0xa5)).toBe(true);
    expect(remote[20]).toBe(20);
    memory.close();
  });

  it('tells EFAULT for addresses that are not there, and probes both ends', () => {
    const memory = own();
    const remote = new Uint8Array(8192);
    const address = Number(addressOf(remote));
    expect(memory.probe(address, 8192)).toBeUndefined();
    expect(memory.probe(4096, 1)).toBe('EFAULT');
    expect(memory.probe(address, 2 ** 45)).toBe('EFAULT');
    expect(memory.read(4096, new Uint8Array(8), 0, 8)).toBe(false);
    expect(memory.write(4096, new Uint8Array(8), 0, 8)).toBe(false);
    expect(memory.lastError).toBe('EFAULT');
    memory.close();
  });

  it('never leaves the local buffer', () => {
    const memory = own();
    const remote = new Uint8Array(64);
    const address = Number(addressOf(remote));
    expect(memory.read(address, new Uint8Array(8), 1, 8)).toBe(false);
    expect(memory.write(address, new Uint8Array(8), 8, 1)).toBe(false);
    expect(memory.lastError).toBe('EINVAL');
    memory.close();
  });

  it('is gone with its process', async () => {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
    await once(child, 'spawn');
    const memory = new ProcessMemory(child.pid ?? 0);
    expect(memory.alive).toBe(true);
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    expect(memory.alive).toBe(false);
    expect(memory.read(0x1000, new Uint8Array(1), 0, 1)).toBe(false);
    expect(memory.write(0x1000, new Uint8Array(1), 0, 1)).toBe(false);
    expect(memory.lastError).toBe('ESRCH');
    memory.close();
  });

  it('is refused once closed, and closes twice without harm', () => {
    const memory = own();
    memory.close();
    memory.close();
    const remote = new Uint8Array(8);
    expect(memory.read(Number(addressOf(remote)), new Uint8Array(8), 0, 8)).toBe(false);
  });

  it('has no memory of a process that is not there', () => {
    expect(() => new ProcessMemory(2 ** 22 + 5)).toThrow(/ESRCH|EINVAL/);
  });

  it('knows whether Yama asks for permission', () => {
    const scope = yamaScope();
    expect([undefined, 0, 1, 2, 3]).toContain(scope);
    expect(allowTracer(process.pid)).toBe(scope !== undefined);
  });
});
