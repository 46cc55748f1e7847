import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runCommand } from '../support/cli-process.ts';
import { capturePath } from '../support/expected-captures.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const folder = temporaryFolder();

describe('iwarpd decode', () => {
  it("prints the kernel's traffic, one line for each frame, and a summary", async () => {
    const { status, stdout, stderr } = await runCommand(['decode', capturePath('sends')]);
    const lines = stdout.trimEnd().split('\n');
    expect(lines[0]).toMatch(/^ +0\.000\d{3} {2}[\d.]+:\d+ > [\d.]+:\d+ {2}MPA Request revision/);
    expect(lines.filter((line) => line.includes('Send QN 0'))).not.toEqual([]);
    expect(stderr).toMatch(/^\d+ packets: 1 iWARP connection, \d+ FPDUs, 0 errors\n$/);
    expect(status).toBe(0);
  });

  it('prints what daemon/TRACING.md shows', async () => {
    const document = readFileSync(new URL('../../daemon/TRACING.md', import.meta.url), 'utf8');
    const [, shown] = /\$ iwarpd decode \S+\n([\s\S]*?)```/.exec(document) ?? [];
    const { stdout, stderr } = await runCommand(['decode', capturePath('terminate-write-stag')]);
    expect(`${stdout}${stderr}`).toBe(shown);
  });

  it('prints one JSON object per line', async () => {
    const { stdout } = await runCommand(['decode', '--json', capturePath('sends')]);
    const [first] = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(first).toEqual({
      format: 1,
      seconds: expect.any(Number),
      source: expect.stringMatching(/:\d+$/),
      destination: expect.stringMatching(/:\d+$/),
      kind: 'mpa',
      text: expect.stringMatching(/^MPA Request/),
    });
  });

  it.each([
    [
      'a missing file',
      'nowhere.pcap',
      undefined,
      /cannot read \S*nowhere\.pcap: no such file or directory \(ENOENT\)/,
    ],
    ['a folder', '.', undefined, /cannot read .*\(EISDIR\)/],
    ['something else', 'text', 'hello, world', /text: not a pcap or pcapng file at byte 0/],
    ['nothing', 'empty', '', /empty: not a pcap or pcapng file at byte 0/],
  ])('fails with one line for %s', async (_, name, content, message) => {
    const file = join(folder, name);
    if (content !== undefined) writeFileSync(file, content);
    const { status, stdout, stderr } = await runCommand(['decode', file]);
    expect(stderr).toMatch(message);
    expect(stderr.trimEnd().split('\n').at(-1)).toMatch(/^iwarpd: /);
    expect([status, stdout]).toEqual([1, '']);
  });
});
