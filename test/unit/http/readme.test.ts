import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { controlRoutes } from '#daemon/http/control-routes';
import { metricsReply } from '#daemon/http/metrics';
import { FixedTarget } from '#test/support/control-target';

const README = readFileSync(new URL('../../../daemon/README.md', import.meta.url), 'utf8');

describe('daemon/README.md', () => {
  it('names only routes that exist', () => {
    const rows = README.split('\n').filter((line) => /^\| `(?:GET|POST|DELETE) \//.test(line));
    expect(rows.length).toBeGreaterThan(3);
    const served = new Set(controlRoutes(new FixedTarget()).map((route) => route.path));
    const named = rows.flatMap((row) =>
      [...(row.split('|')[1] ?? '').matchAll(/`(?:[A-Z]+ )?(\/[^`]*)`/g)].map(([, path]) => path),
    );
    expect(named.filter((path) => path === undefined || !served.has(path))).toEqual([]);
  });

  it('shows only metrics that exist', async () => {
    const target = new FixedTarget();
    const [device] = target.status().devices;
    const counters = { out_sends: 1, out_writes: 1, out_reads: 1 };
    const status = () => ({
      ...FixedTarget.prototype.status.call(target),
      devices: device === undefined ? [] : [{ ...device, counters }],
    });
    const { body } = await metricsReply(Object.assign(new FixedTarget(), { status }));
    const shown = [...README.matchAll(/^(iwarpd_\w+)\{device="/gm)].map(([, name]) => name);
    expect(shown.length).toBeGreaterThan(0);
    for (const name of shown) expect(String(body)).toContain(`# TYPE ${name} counter\n`);
  });
});
