import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    passWithNoTests: false,
    // Two cores are what a small CI machine has; a suite that starts daemons needs them too.
    maxWorkers: 2,
  },
});
