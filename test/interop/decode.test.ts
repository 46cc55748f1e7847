/** Our decoder of capture files against Wireshark's: the same FPDUs in every recording. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { CaptureDecoder, type DecodedLine } from '#daemon/capture/capture-decoder';
import { captureNames, capturePath } from '../support/expected-captures.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type DissectedFpdu, dissect } from './tshark.ts';

function decode(name: string): DecodedLine[] {
  const lines: DecodedLine[] = [];
  const decoder = new CaptureDecoder({ line: (line) => lines.push(line) });
  decoder.push(readFileSync(capturePath(name)));
  decoder.finish();
  return lines;
}

function portsOf({ source, destination }: DecodedLine): string {
  return [source, destination].map((end) => end.slice(end.lastIndexOf(':') + 1)).join(' ');
}

/** Place and last flag of a segment, from a line of our output. */
function placeOf({ tagged, untagged, last }: DissectedFpdu): string {
  const stag = tagged?.stag.toString(16).padStart(8, '0');
  const place = tagged
    ? `STag 0x${stag} TO 0x${tagged.to}`
    : `QN ${untagged?.qn} MSN ${untagged?.msn} MO ${untagged?.mo}`;
  return `${place}${last ? ' last' : ''}`;
}

function placeIn(text: string): string {
  const place = /STag 0x\w+ TO 0x\w+|QN \d+ MSN \d+ MO \d+/.exec(text)?.[0];
  return `${place}${text.endsWith(', last') || / Terminate|^Terminate/.test(text) ? ' last' : ''}`;
}

function grouped<T>(all: readonly T[], key: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of all) groups.set(key(one), [...(groups.get(key(one)) ?? []), one]);
  return groups;
}

describeWith(['tshark'], 'iwarpd decode and tshark', () => {
  it.each(captureNames())('%s: find the same', async (name) => {
    const lines = decode(name);
    const { fpdus } = await dissect(capturePath(name));
    const good = fpdus.filter(({ crc }) => crc !== 'bad');
    const ours = grouped(
      lines.filter(({ kind }) => kind === 'fpdu'),
      portsOf,
    );
    const theirs = grouped(good, (fpdu) => `${fpdu.sourcePort} ${fpdu.destinationPort}`);
    expect([...ours.keys()].toSorted()).toEqual([...theirs.keys()].toSorted());
    for (const [ports, found] of ours) {
      expect(found.map(({ text }) => placeIn(text))).toEqual(
        (theirs.get(ports) ?? []).map(placeOf),
      );
    }
    const bad = lines.filter(({ kind }) => kind === 'error');
    expect(bad).toHaveLength(fpdus.length - good.length);
  });
});
