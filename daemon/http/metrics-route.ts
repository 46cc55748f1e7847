/** `/metrics`. What makes them is loaded by the first who asks: the daemon is ready sooner. */
import type { ControlTarget } from '../control/target.ts';
import type { HttpRoute } from './http-route.ts';

/** The route. */
export function metricsRoute(target: ControlTarget): HttpRoute {
  return {
    method: 'GET',
    path: '/metrics',
    summary: 'Metrics for Prometheus',
    produces: 'text/plain',
    handle: async () => {
      const { metricsReply } = await import('./metrics.ts');
      return await metricsReply(target);
    },
  };
}
