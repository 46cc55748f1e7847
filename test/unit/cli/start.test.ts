import { describe, expect, it } from 'vitest';
import { commandOf } from '#verbs-api/client/start-command';

describe('the command in the ready line', () => {
  it.each([
    ['/usr/local/bin/iwarpd', 'iwarpd'],
    ['/home/me/project/node_modules/.bin/iwarpd', 'npx iwarpd'],
    ['/home/me/iwarpd/dist/daemon/cli/main.js', 'npx iwarpd'],
  ])('of %s is %s', (script, command) => {
    expect(commandOf(script, { PATH: '/usr/bin' })).toBe(command);
  });

  it('is iwarpd if its folder is in the PATH of the user, not only in that of npm', () => {
    const script = '/home/me/project/node_modules/.bin/iwarpd';
    const PATH = '/usr/bin:/home/me/project/node_modules/.bin';
    expect(commandOf(script, { PATH })).toBe('iwarpd');
    expect(commandOf(script, { PATH, npm_lifecycle_script: "'iwarpd'" })).toBe('npx iwarpd');
  });
});
