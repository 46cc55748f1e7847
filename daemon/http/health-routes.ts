/** `/healthz` and `/readyz`, for those who only ask whether anybody is there. */
import type { ControlTarget } from '../control/target.ts';
import { type HttpRoute, textReply } from './http-route.ts';

/** Both are answered without the token: probes of containers have none. */
export function healthRoutes(target: Pick<ControlTarget, 'ready'>): HttpRoute[] {
  return [
    {
      method: 'GET',
      path: '/healthz',
      summary: 'The daemon answers',
      produces: 'text/plain',
      open: true,
      handle: () => textReply('ok\n'),
    },
    {
      method: 'GET',
      path: '/readyz',
      summary: 'The daemon serves; 503 while it starts or stops',
      produces: 'text/plain',
      open: true,
      handle: () => (target.ready ? textReply('ready\n') : textReply('not ready\n', 503)),
    },
  ];
}
