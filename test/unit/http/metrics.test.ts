import { describe, expect, it } from 'vitest';
import { metricsRoute } from '../../../daemon/http/metrics-route.ts';
import { FixedTarget } from '../../support/control-target.ts';
import { parseMetrics } from '../../support/prometheus-text.ts';

async function metricsOf(target: FixedTarget) {
  const reply = await metricsRoute(target).handle({
    params: {},
    query: {},
    signal: new AbortController().signal,
    readJson: async () => ({}),
  });
  return { reply, samples: parseMetrics(String(reply.body)) };
}

describe('/metrics', () => {
  it('is text that Prometheus reads, line by line', async () => {
    const { reply, samples } = await metricsOf(new FixedTarget());
    expect(reply.status).toBe(200);
    expect(reply.type).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(samples.size).toBeGreaterThan(10);
    expect(samples.get('iwarpd_iw_out_rdma_sends_total{device="a"}')).toBe(5);
    expect(samples.get('iwarpd_iw_out_rdma_sends_total{device="b"}')).toBe(6);
    expect(samples.get('iwarpd_port_rcv_data_bytes_total{device="a"}')).toBe(2 ** 40);
    expect(samples.get('iwarpd_connections{device="a",phase="established"}')).toBe(1);
    expect(samples.get('iwarpd_connections{device="b",phase="established"}')).toBe(0);
    expect(samples.get('iwarpd_objects{kind="mr"}')).toBe(2);
    expect(samples.get('iwarpd_objects{kind="srq"}')).toBe(0);
    expect(samples.get('iwarpd_memory_regions{tier="process_vm"}')).toBe(1);
    expect(samples.get('iwarpd_clients')).toBe(1);
    expect(samples.get('iwarpd_ready')).toBe(1);
  });

  it('shows a counter that it has no name for by its own', async () => {
    const { samples } = await metricsOf(new FixedTarget());
    expect(samples.get('iwarpd_something_new_total{device="a"}')).toBe(1);
  });

  it('keeps the format whatever a label holds', async () => {
    const target = new FixedTarget();
    target.crcEngine = 'a "quoted" \\ and\nbroken {x="y"} 7';
    const { samples } = await metricsOf(target);
    const label = 'a \\"quoted\\" \\\\ and\\nbroken {x=\\"y\\"} 7';
    expect(samples.get(`iwarpd_build_info{version="1.2.3",crc_engine="${label}"}`)).toBe(1);
  });

  it('shows each scrape anew', async () => {
    const target = new FixedTarget();
    const first = await metricsOf(target);
    target.ready = false;
    const second = await metricsOf(target);
    expect([...second.samples.keys()]).toEqual([...first.samples.keys()]);
    expect(second.samples.get('iwarpd_ready')).toBe(0);
    expect(second.samples.get('iwarpd_iw_out_rdma_sends_total{device="a"}')).toBe(5);
  });
});
