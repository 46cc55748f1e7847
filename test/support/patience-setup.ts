/** Before each file of tests: its limits, as the load of the machine is now; after it: its folders. */
import { afterAll, vi } from 'vitest';
import { patience, TEST_MS } from './patience.ts';
import { removeTemporaryFolders } from './temporary-folder.ts';

vi.setConfig({
  testTimeout: patience(TEST_MS),
  hookTimeout: patience(TEST_MS),
  expect: { poll: { timeout: patience() } },
});

afterAll(removeTemporaryFolders);
