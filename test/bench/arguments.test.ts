import { describe, expect, it } from 'vitest';
import { parseBenchArguments } from '#test/bench/arguments';

describe('the arguments of npm run bench', () => {
  it('may be omitted to run everything', () => {
    expect(parseBenchArguments([])).toEqual({
      command: 'table',
      only: [],
      rounds: 5,
      jsonFile: undefined,
      profileFolder: undefined,
      keep: false,
    });
    expect(parseBenchArguments(['growth'])).toMatchObject({ command: 'growth', minutes: 15 });
  });

  it('choose measurements, rounds and files', () => {
    const words = ['--only', 'a', '--only', 'b', '--rounds', '15', '--json', 'f', '--profile'];
    expect(parseBenchArguments(words)).toEqual({
      command: 'table',
      only: ['a', 'b'],
      rounds: 15,
      jsonFile: 'f',
      profileFolder: '.cache/profiles',
      keep: false,
    });
    const growth = ['growth', '--only', 'clients', '--minutes', '2', '--json', 'f'];
    expect(parseBenchArguments(growth)).toEqual({
      command: 'growth',
      only: ['clients'],
      minutes: 2,
      jsonFile: 'f',
      keep: false,
    });
    expect(parseBenchArguments(['--keep'])).toMatchObject({ keep: true });
  });

  it('name a checkout to compare with', () => {
    expect(parseBenchArguments(['against', '../older', '--only', 'a', '--starts', '4'])).toEqual({
      command: 'against',
      directory: '../older',
      only: ['a'],
      rounds: 5,
      starts: 4,
      jsonFile: undefined,
    });
  });

  it.each([['--help'], ['-h'], ['growth', '--help'], ['--keep', '-h']])(
    'ask for help: %j',
    (...words) => {
      expect(parseBenchArguments(words)).toEqual({ command: 'help' });
    },
  );

  it.each([
    [['--fast'], /--fast.*; options are --only NAME/],
    [['--rounds', '0'], /--rounds takes a number from 1 to 1000/],
    [['--rounds', '1e3'], /--rounds takes/],
    [['--rounds', '1001'], /--rounds takes/],
    [['--rounds', '2.5'], /--rounds takes/],
    [['--minutes', '3'], /options are --only NAME/],
    [['growing'], /growing/],
    [['growth', '--rounds', '3'], /options are --only SERIES/],
    [['growth', '--minutes', '-1'], /--minutes/],
    [['against'], /against takes the directory of another checkout; options are --only NAME/],
    [['against', 'a', 'b'], /takes the directory/],
    [['against', 'a', '--starts', '0'], /--starts takes a number from 1 to 100/],
    [['against', 'a', '--keep'], /--keep/],
    [['--keep', '--only', 'messages'], /--keep takes a whole run/],
  ])('are rejected with the valid ones: %j', (words, message) => {
    expect(() => parseBenchArguments(words)).toThrow(message);
    try {
      parseBenchArguments(words);
    } catch (error) {
      expect(error).toMatchObject({ exitStatus: 2 });
    }
  });
});
