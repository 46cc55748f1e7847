/** Gives each test file the environment that the run started with: one worker runs many files. */
const KEY = Symbol.for('iwarpd.test.environment');
const shared = globalThis as { [KEY]?: NodeJS.ProcessEnv };

shared[KEY] ??= { ...process.env };
for (const name of Object.keys(process.env)) {
  if (!Object.hasOwn(shared[KEY], name)) delete process.env[name];
}
Object.assign(process.env, shared[KEY]);
