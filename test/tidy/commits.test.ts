/** Subjects of commits have the form that CONTRIBUTING asks for, so that `git log --oneline` can be searched. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** The last commit before the rule. */
const BASE = 'a51a395b2f3fc7c201ccb9e71b86c9d4fa1de4eb';
const SUBJECT_MAX = 60;

/** One area or several, a verb, and its object. */
const FORM = /^[a-z0-9][\w./-]*(?:, [a-z0-9][\w./-]*)*: ([a-z][a-z-]*) \S.*[^.]$/;
const RELEASE = /^release: \d+\.\d+\.\d+$/;
/** First words that are not imperatives: other forms of a verb, articles, pronouns and the like. */
const NO_IMPERATIVE =
  /(?<!e|^emb|^sh|^w)ed$|(?<!^br|^cl|^fl|^p|^r|^spr|^str|^sw)ing$|(?<!s|cu|i)s$|^(?:an?|the|all|each|every|no|not|some|that|this|what|when|it|more|less|new)$/;

/** The mistake in a subject; undefined for a good one. */
function mistakeIn(subject: string): string | undefined {
  if (RELEASE.test(subject)) return undefined;
  if (subject.length > SUBJECT_MAX) return `${subject.length} characters, not ${SUBJECT_MAX}`;
  const [, verb] = FORM.exec(subject) ?? [];
  if (verb === undefined) return 'not "area: verb object"';
  return NO_IMPERATIVE.test(verb) ? `"${verb}" is no imperative` : undefined;
}

/** Subjects since the base, or the reason why they cannot be read: a tarball, a shallow clone, no git. */
function readSubjects(): string[] | string {
  const git = (...words: string[]) =>
    spawnSync('git', ['-C', ROOT, ...words], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  const inside = git('rev-parse', '--show-cdup');
  if (inside.status !== 0 || inside.stdout.trim() !== '') return 'no git checkout';
  if (git('merge-base', '--is-ancestor', BASE, 'HEAD').status !== 0) {
    return `no history back to ${BASE.slice(0, 8)}`;
  }
  return git('log', '--no-merges', '--format=%s', `${BASE}..HEAD`).stdout.split('\n').slice(0, -1);
}

describe('subjects of commits', () => {
  const subjects = readSubjects();
  const skipped = typeof subjects === 'string' ? ` (skipped: ${subjects})` : '';

  it.skipIf(skipped !== '')(`are imperative and short${skipped}`, () => {
    const mistakes = [subjects].flat().flatMap((subject) => {
      const mistake = mistakeIn(subject);
      return mistake === undefined ? [] : [`${subject} (${mistake})`];
    });
    expect(mistakes).toEqual([]);
  });

  it.each([
    ['cm: stop the send queue on disconnect', undefined],
    ['ipc, host: process requests in several turns', undefined],
    ['host/links: bring ::1 up', undefined],
    ['release: 0.2.0', undefined],
    ['cm: Stop the queue', 'not "area: verb object"'],
    ['cm: stop the queue.', 'not "area: verb object"'],
    ['stop the queue', 'not "area: verb object"'],
    ['cm: stopped the queue', '"stopped" is no imperative'],
    ['cm: stopping the queue', '"stopping" is no imperative'],
    ['cm: stops the queue', '"stops" is no imperative'],
    ['cm: the queue stops', '"the" is no imperative'],
    [`cm: stop the queue${' and more'.repeat(6)}`, '72 characters, not 60'],
  ])('%s', (subject, mistake) => {
    expect(mistakeIn(subject)).toBe(mistake);
  });
});
