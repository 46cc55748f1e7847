/** An object's owner is found through the object or a parameter, not through a map beside the code. */
import { describe, expect, it } from 'vitest';
import { readSources } from './source-graph.ts';

/** Collections that a whole process shares, each with the reason why no object can hold it. */
const ALLOWED: Readonly<Record<string, string>> = {
  'verbs-api/client/memory-region.ts: sharedBuffers':
    'an ArrayBuffer of the consumer has no field of ours; a second regMR must find its mapping',
  'verbs-api/testing/async-event-log.ts: logs':
    'one log for each Context of either provider, whose public interface has no place for it',
  'verbs-api/testing/daemon-registry.ts: signals':
    'a Provider of the public interface, which does not know who started its daemon',
  'verbs-api/shared-context.ts: entries':
    'a Provider of the public interface, which does not know the layer of connections above it',
  'daemon/rnic/rings/ring.ts: VIEWS':
    'an ArrayBuffer has no field of ours, and the rings of one share its views',
  'native-bridge/rdma/libraries.ts: loaded': 'a process loads a shared library once',
  'native-bridge/rdma/memory-region.ts: pageMemory':
    'an ArrayBuffer of the consumer has no field of ours; its pages live as long as it does',
  'native-bridge/libc/open-roots.ts: roots': 'what the exit of the process has to close',
  'native-bridge/libc/watched-descriptor.ts: open': 'what the exit of the process has to end',
};

const AT_TOP =
  /^(?:export )?const (\w+)[^=\n]*=\s*new (?:Map|WeakMap|Set|WeakSet)\b|^ +(?:private |protected |public |readonly )*static (?:readonly )?(#?\w+)[^=\n(]*=\s*new (?:Map|WeakMap|Set|WeakSet)\b/gm;

/** Collections of a module or a class that its code changes, as `file: name`. */
function changedCollections(texts: ReadonlyMap<string, string>): string[] {
  return [...texts].flatMap(([file, text]) =>
    [...text.matchAll(AT_TOP)]
      .map(([, top, member]) => top ?? member ?? '')
      .filter((name) => new RegExp(`${name}\\.(?:set|add|delete|clear)\\(`).test(text))
      .map((name) => `${file}: ${name}`),
  );
}

describe('global collections', () => {
  it('change only if no object can own them', () => {
    const shipped = new Map([...readSources()].filter(([file]) => !file.startsWith('test/')));
    expect(changedCollections(shipped).sort()).toEqual(Object.keys(ALLOWED).sort());
  });

  it('are found in modules and classes, and left alone when they are tables', () => {
    const example = new Map([
      ['a.ts', 'const owners = new WeakMap<object, string>();\nowners.set({}, 1);\n'],
      [
        'b.ts',
        'class B {\n  static readonly #all = new Map<A, B>();\n  x() { B.#all.delete(a); }\n}\n',
      ],
      ['c.ts', 'export const TABLE = new Map<number, string>([[1, "a"]]);\nTABLE.get(1);\n'],
      ['d.ts', 'class D {\n  readonly #own = new Set<A>();\n  x() { this.#own.add(a); }\n}\n'],
    ]);
    expect(changedCollections(example)).toEqual(['a.ts: owners', 'b.ts: #all']);
  });
});
