/** Sets each test file's timeouts by the machine's load, and removes its folders afterwards. */
import { afterAll, vi } from 'vitest';
import { patience, TEST_MS } from './patience.ts';
import { removeTemporaryFolders } from './temporary-folder.ts';

vi.setConfig({
  testTimeout: patience(TEST_MS),
  hookTimeout: patience(TEST_MS),
  expect: { poll: { timeout: patience() } },
});

afterAll(removeTemporaryFolders);
