import { expect, it } from 'vitest';
import { configSchema, parseDaemonConfig } from '#daemon/main/config';

it('the schema of a configuration file names every option, and a file may name the schema', () => {
  const schema = configSchema() as { properties: Record<string, unknown> };
  const config = parseDaemonConfig({ $schema: 'iwarpd.schema.json' });
  const internal = ['nativeDevices'];
  const options = Object.keys(config).filter((name) => !internal.includes(name));
  expect(Object.keys(schema.properties)).toEqual(expect.arrayContaining(options));
  expect(JSON.stringify(schema)).toContain('"maxQp"');
});

it('all wrong options are named', () => {
  const wrong = { nam: 1, logLevel: 'loud', devices: [{ name: 'a', adresses: [] }] };
  expect(() => parseDaemonConfig(wrong)).toThrow(
    /^option devices\.0\.adresses: unknown field \(also logLevel: must be .*, nam: unknown field\)$/,
  );
});
