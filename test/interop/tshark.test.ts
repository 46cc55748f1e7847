/** Wireshark against the expectations of the recordings: each judges the other. */
import { expect, it } from 'vitest';
import { captureNames, capturePath, readExpectation } from '../support/expected-captures.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type DissectedFpdu, dissect } from './tshark.ts';

const OPCODE_WORDS = ['Write', 'ReadRequest', 'ReadResponse', 'Send', 'SendInvalidate'].concat([
  'SendSolicited',
  'SendSolicitedInvalidate',
  'Terminate',
]);

/** The start of an expectation's line, which Wireshark's fields determine. */
function lineOf({ opcode, last, tagged, untagged }: DissectedFpdu): string {
  const words = [OPCODE_WORDS[opcode], last ? 'last' : 'more'];
  if (tagged) words.push(`stag=${tagged.stag.toString(16).padStart(8, '0')}`, `to=${tagged.to}`);
  if (untagged) words.push(`qn=${untagged.qn}`, `msn=${untagged.msn}`, `mo=${untagged.mo}`);
  return words.join(' ');
}

function headOf(line: string): string {
  return line.split(/ (?=invalidate=|length=|sink=|layer=|pad=|crc=)/)[0] ?? '';
}

describeWith(['tshark'], 'tshark on the recordings', () => {
  it.each(captureNames())('%s: finds the FPDUs that are expected', async (name) => {
    const { fpdus, malformed, crcGood, crcBad } = await dissect(capturePath(name));
    const { connections } = readExpectation(name);
    for (const { ports, initiator, responder } of connections) {
      const from = (port: number): string[] =>
        fpdus
          .filter((fpdu) => fpdu.sourcePort === port && ports.includes(fpdu.destinationPort))
          .map(lineOf);
      expect(from(ports[0])).toEqual(initiator.fpdus.map(headOf));
      expect(from(ports[1])).toEqual(responder.fpdus.map(headOf));
    }
    const lines = connections.flatMap(({ initiator, responder }) => [
      ...initiator.fpdus,
      ...responder.fpdus,
    ]);
    const withCrc = connections.some(({ responder }) => responder.startup.crc);
    expect(crcGood).toBe(withCrc ? lines.filter((line) => line.endsWith('crc=right')).length : 0);
    expect(crcBad).toBe(lines.filter((line) => line.endsWith('crc=wrong')).length);
    expect(malformed).toEqual([]);
  });

  it('reads the bytes of a Terminate in the order of RFC 5040', async () => {
    // siw's 11 00 03 00 is the same in either order of layer and error type.
    const write = await dissect(capturePath('terminate-write-stag'));
    expect(write.terminates).toEqual([{ frame: 9, layer: 1, etype: 1, code: 0 }]);
    // siw's 10 00 07 00 means layer 0, type 1.
    const read = await dissect(capturePath('terminate-read-stag'));
    expect(read.terminates).toEqual([{ frame: 9, layer: 1, etype: 0, code: 0 }]);
  });

  it('reports a file that is not a recording', async () => {
    await expect(dissect(new URL(import.meta.url).pathname)).rejects.toThrow('tshark cannot read');
  });
});
