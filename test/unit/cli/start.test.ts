import { describe, expect, it } from 'vitest';
import { commandOf } from '../../../verbs-api/client/start-command.ts';

describe('the command in the ready line', () => {
  it.each([
    ['/usr/local/bin/iwarpd', 'iwarpd'],
    ['/home/me/project/node_modules/.bin/iwarpd', 'npx iwarpd'],
    ['/home/me/iwarpd/dist/daemon/cli/main.js', 'npx iwarpd'],
  ])('of %s is %s', (script, command) => {
    expect(commandOf(script)).toBe(command);
  });
});
