/** The HTTP routes of the control plane. */
import { type Operator, OWNER } from '../control/operation.ts';
import type { ControlTarget } from '../control/target.ts';
import { type HttpRoute, textReply } from './http-route.ts';
import { metricsReply } from './metrics.ts';
import { openApiRoute } from './openapi.ts';
import { operationRoutes } from './operation-routes.ts';
import { pageRoute } from './page-route.ts';

export function controlRoutes(target: ControlTarget, caller: Operator = OWNER): HttpRoute[] {
  const routes = [
    pageRoute(),
    ...healthRoutes(target),
    metricsRoute(target),
    ...operationRoutes(target, caller),
  ];
  return [...routes, openApiRoute(routes, target.version)];
}

export function metricsRoute(target: ControlTarget): HttpRoute {
  return {
    method: 'GET',
    path: '/metrics',
    summary: 'Metrics in the Prometheus text format',
    produces: 'text/plain',
    handle: () => metricsReply(target),
  };
}

/** Neither needs the token: container probes have none. */
export function healthRoutes(target: Pick<ControlTarget, 'ready'>): HttpRoute[] {
  return [
    {
      method: 'GET',
      path: '/healthz',
      summary: 'Liveness: 200 while the daemon responds',
      produces: 'text/plain',
      open: true,
      handle: () => textReply('ok\n'),
    },
    {
      method: 'GET',
      path: '/readyz',
      summary: 'Readiness: 200 while the daemon serves clients, 503 while it starts or stops',
      produces: 'text/plain',
      open: true,
      handle: () => (target.ready ? textReply('ready\n') : textReply('not ready\n', 503)),
    },
  ];
}
