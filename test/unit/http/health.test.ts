import { describe, expect, it } from 'vitest';
import { healthRoutes } from '#daemon/http/control-routes';

const REQUEST = {
  params: {},
  query: {},
  signal: new AbortController().signal,
  readJson: async () => ({}),
};

describe('probes', () => {
  it('report whether the daemon responds, and whether it serves', async () => {
    const target = { ready: false };
    const [health, readiness] = healthRoutes(target);
    expect(health).toMatchObject({ path: '/healthz', open: true });
    expect(readiness).toMatchObject({ path: '/readyz', open: true });
    expect(await health?.handle(REQUEST)).toMatchObject({ status: 200, body: 'ok\n' });
    expect(await readiness?.handle(REQUEST)).toMatchObject({ status: 503, body: 'not ready\n' });
    target.ready = true;
    expect(await readiness?.handle(REQUEST)).toMatchObject({ status: 200, body: 'ready\n' });
  });
});
