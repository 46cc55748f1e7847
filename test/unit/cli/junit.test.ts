import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { type JunitRun, junitXml } from '#daemon/cli/run/junit';

const hasParser = spawnSync('python3', ['-c', 'import xml.etree']).status === 0;

const RUN: JunitRun = {
  words: ['make', 'check'],
  startedAt: new Date('2026-01-02T03:04:05.678Z'),
  seconds: 1.5,
  properties: { 'iwarpd.version': '0.1.0' },
  stdout: '',
  stderr: '',
};

/** Output of Python's parser: attributes and texts by tag. */
const READ = `
import json, sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
print(json.dumps([[each.tag, each.attrib, each.text] for each in root.iter()]))`;

function parsed(document: string): Map<string, [Record<string, string>, string | null]> {
  const { stdout, stderr } = spawnSync('python3', ['-c', READ], { input: document });
  expect(stderr.toString()).toBe('');
  const found = JSON.parse(stdout.toString()) as [string, Record<string, string>, string | null][];
  return new Map(found.map(([tag, attributes, text]) => [tag, [attributes, text]]));
}

describe('the JUnit file of a run', () => {
  it('has one passed test case for a program that succeeded', () => {
    const document = junitXml({ ...RUN, stdout: 'ok\n' });
    expect(document).toContain('<testsuites tests="1" failures="0" errors="0" time="1.500">');
    expect(document).toContain('timestamp="2026-01-02T03:04:05"');
    expect(document).toContain(
      '<testcase classname="iwarpd.run" name="make check" time="1.500">\n      <system-out>ok\n</system-out>',
    );
    expect(document).not.toMatch(/<failure|<error/);
  });

  it('has the report of a failure, or the error of a run that did not start', () => {
    const report = { failure: 'it broke', sections: [{ title: 'open', lines: ['1 qp', '2 mr'] }] };
    expect(junitXml({ ...RUN, report })).toContain(
      '<failure message="it broke" type="run">open:\n1 qp\n2 mr</failure>',
    );
    const document = junitXml({ ...RUN, error: 'no such program' });
    expect(document).toContain('failures="0" errors="1"');
    expect(document).toContain('<error message="no such program"/>');
  });

  it.skipIf(!hasParser)('is well-formed whatever names and output are', () => {
    const hostile = `]]>&<"'\u0000\u001b[31m\ud800x\udc00\uffff\r\n\t😀`;
    const document = junitXml({
      ...RUN,
      words: ['a&b', hostile],
      report: { failure: hostile, sections: [{ title: hostile, lines: [hostile] }] },
      properties: { [hostile]: hostile },
      stdout: hostile,
      stderr: hostile,
    });
    const harmless = `]]>&<"'\ufffd\ufffd[31m\ufffdx\ufffd\ufffd\r\n\t😀`;
    const found = parsed(document);
    expect(found.get('testcase')?.[0]['name']).toBe(`a&b ${harmless}`);
    expect(found.get('system-out')?.[1]).toBe(harmless);
    expect(found.get('failure')?.[0]['message']).toBe(harmless);
  });

  it('cuts a long name', () => {
    expect(junitXml({ ...RUN, words: ['x'.repeat(10_000)] }).length).toBeLessThan(1_500);
  });
});
