import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { placeOfField, syntaxFault } from '#daemon/cli/json-field';

const TEXT = `{
  "a": [1, "x,]}\\"",
    {"b": null}
  ],
  "c\\u0064": {
    "e": [[], {}, [{"f":
      true}]]
  }, "a2":
    -1.5e3
}`;

function lineOfField(text: string, path: readonly string[]): number {
  return Number(placeOfField(text, path).split(':')[0]);
}

describe('invalid JSON', () => {
  it.each([
    ['{"a": [{"b": 1},]}', '1:17', 'not JSON: value expected'],
    ['{\n  "a": 1\n  "b": 2\n}', '3:3', 'not JSON: comma expected'],
    ["{'a': 1}", '1:2', 'not JSON: invalid symbol'],
    ['{"a": 1} // why', '1:10', 'not JSON: invalid comment token'],
    ['{"a": 1', '1:8', 'not JSON: close brace expected'],
    ['', '1:1', 'not JSON: value expected'],
  ])('%j is wrong at %s: %s', (text, place, reason) => {
    expect(syntaxFault(text)).toEqual({ place, reason });
  });

  it('has no position if it nests too deeply', () => {
    expect(syntaxFault('['.repeat(1_000_000))).toBeUndefined();
  });
});

describe('the place of a field', () => {
  it('has a column', () => {
    expect(placeOfField(TEXT, ['a', '1'])).toBe('2:12');
  });

  it.each([
    ['', 1],
    ['a', 2],
    ['a.1', 2],
    ['a.2', 3],
    ['a.2.b', 3],
    ['cd', 5],
    ['cd.e', 6],
    ['cd.e.2.0', 6],
    ['cd.e.2.0.f', 7],
    ['a2', 9],
  ])('%s is on line %i', (path, line) => {
    JSON.parse(TEXT);
    expect(lineOfField(TEXT, path === '' ? [] : path.split('.'))).toBe(line);
  });

  it('is that of its parent if the field is missing', () => {
    expect(lineOfField(TEXT, ['a', '2', 'x'])).toBe(3);
    expect(lineOfField(TEXT, ['a', '7'])).toBe(2);
    expect(lineOfField(TEXT, ['a2', 'x', 'y'])).toBe(9);
    expect(lineOfField(TEXT, ['x'])).toBe(1);
  });

  it('is that of the last duplicate', () => {
    expect(lineOfField('{"a": 1,\n"a": {\n"b": 2}}', ['a', 'b'])).toBe(3);
  });

  it('is found in any JSON, at any depth', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 5 }), fc.string(), (inner, name) => {
        const text = `{"x": ${inner},\n${JSON.stringify(name)}: [${inner},\n7]}`;
        const lines = inner.split('\n').length - 1;
        expect(lineOfField(text, [name, '1'])).toBe(2 * lines + 3);
      }),
    );
    const deep = `{"x": ${'['.repeat(100_000)}${']'.repeat(100_000)},\n"y": 1}`;
    expect(lineOfField(deep, ['y'])).toBe(2);
  });
});
