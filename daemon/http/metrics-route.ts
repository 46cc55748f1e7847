/** `/metrics`. The first request loads prom-client, which keeps daemon startup fast. */
import type { ControlTarget } from '../control/target.ts';
import type { HttpRoute } from './http-route.ts';

export function metricsRoute(target: ControlTarget): HttpRoute {
  return {
    method: 'GET',
    path: '/metrics',
    summary: 'Metrics in the Prometheus text format',
    produces: 'text/plain',
    handle: async () => {
      const { metricsReply } = await import('./metrics.ts');
      return await metricsReply(target);
    },
  };
}
