import { describe, expect, it } from 'vitest';
import { OWNER } from '#daemon/control/operation';
import { executeNamed } from '#daemon/control/operations';
import { metricsRoute } from '#daemon/http/control-routes';
import { FixedTarget } from '#test/support/control-target';
import { parseMetrics } from '#test/support/prometheus-text';

const DURATION = 'iwarpd_control_operation_duration_seconds';

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
  it('parses as Prometheus text, line by line', async () => {
    const { reply, samples } = await metricsOf(new FixedTarget());
    expect(reply).toMatchObject({ status: 200, type: 'text/plain; version=0.0.4; charset=utf-8' });
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

  it('shows a counter without a metric name under its own name', async () => {
    const { samples } = await metricsOf(new FixedTarget());
    expect(samples.get('iwarpd_something_new_total{device="a"}')).toBe(1);
  });

  it('counts each control operation by its duration', async () => {
    const target = new FixedTarget();
    expect((await metricsOf(target)).samples.has(`${DURATION}_count{operation="status"}`)).toBe(
      false,
    );
    target.operationTimes.add('status', 0.0002);
    target.operationTimes.add('status', 0.001);
    target.operationTimes.add('status', 60);
    const { samples } = await metricsOf(target);
    const bucket = (le: string) => samples.get(`${DURATION}_bucket{operation="status",le="${le}"}`);
    expect(['0.0001', '0.0005', '0.001', '10', '+Inf'].map(bucket)).toEqual([0, 1, 2, 2, 3]);
    expect(samples.get(`${DURATION}_sum{operation="status"}`)).toBeCloseTo(60.0012, 6);
    expect(samples.get(`${DURATION}_count{operation="status"}`)).toBe(3);
  });

  it('shows the longest turn of the event loop, and how long turns are', async () => {
    const target = new FixedTarget();
    target.turnTimes.add(0.05);
    const { samples } = await metricsOf(target);
    expect(samples.get('iwarpd_event_loop_longest_turn_seconds')).toBe(0.05);
    const bucket = (le: string) => samples.get(`iwarpd_event_loop_turn_seconds_bucket{le="${le}"}`);
    expect(['0.01', '0.1', '+Inf'].map(bucket)).toEqual([0, 1, 1]);
    expect(samples.get('iwarpd_event_loop_turn_seconds_count')).toBe(1);
  });

  it('times operations that run, not requests that are refused', async () => {
    const target = new FixedTarget();
    await executeNamed(target, 'listFaults', {}, OWNER);
    await expect(executeNamed(target, 'listFaults', { more: 1 }, OWNER)).rejects.toThrow('more');
    const { samples } = await metricsOf(target);
    expect(samples.get(`${DURATION}_count{operation="listFaults"}`)).toBe(1);
  });

  it('reports the start time of the process, the same at each scrape', async () => {
    const target = new FixedTarget();
    const start = (await metricsOf(target)).samples.get('process_start_time_seconds') ?? 0;
    expect(Math.abs(start - (Date.now() / 1000 - process.uptime()))).toBeLessThan(60);
    expect((await metricsOf(target)).samples.get('process_start_time_seconds')).toBe(start);
  });

  it('escapes labels, whatever they contain', async () => {
    const target = new FixedTarget();
    target.crcEngine = 'a "quoted" \\ and\nbroken {x="y"} 7';
    const { samples } = await metricsOf(target);
    const label = 'a \\"quoted\\" \\\\ and\\nbroken {x=\\"y\\"} 7';
    expect(samples.get(`iwarpd_build_info{version="1.2.3",crc_engine="${label}"}`)).toBe(1);
  });

  it('computes each scrape again', async () => {
    const target = new FixedTarget();
    const first = await metricsOf(target);
    target.ready = false;
    const second = await metricsOf(target);
    expect([...second.samples.keys()]).toEqual([...first.samples.keys()]);
    expect(second.samples.get('iwarpd_ready')).toBe(0);
    expect(second.samples.get('iwarpd_iw_out_rdma_sends_total{device="a"}')).toBe(5);
  });
});
