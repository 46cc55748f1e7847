/** `/healthz` and `/readyz`, for liveness and readiness probes. */
import type { ControlTarget } from '../control/target.ts';
import { type HttpRoute, textReply } from './http-route.ts';

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
