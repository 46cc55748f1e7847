/** The calls of libibverbs and librdmacm that issue each command, as a program's source spells them. */
import { CmCommand } from './cm/abi.ts';
import { ExtendedCommandNumber as E, UverbsCommandNumber as N } from './uverbs/layouts.ts';

/** By number of a plain command of uverbs. */
export const UVERBS_CALLS: Readonly<Partial<Record<number, string>>> = {
  [N.getContext]: 'ibv_open_device',
  [N.queryDevice]: 'ibv_query_device',
  [N.queryPort]: 'ibv_query_port',
  [N.allocPD]: 'ibv_alloc_pd',
  [N.deallocPD]: 'ibv_dealloc_pd',
  [N.createAH]: 'ibv_create_ah',
  [N.destroyAH]: 'ibv_destroy_ah',
  [N.regMR]: 'ibv_reg_mr',
  [N.deregMR]: 'ibv_dereg_mr',
  [N.allocMW]: 'ibv_alloc_mw',
  [N.deallocMW]: 'ibv_dealloc_mw',
  [N.createCompChannel]: 'ibv_create_comp_channel',
  [N.createCQ]: 'ibv_create_cq',
  [N.resizeCQ]: 'ibv_resize_cq',
  [N.destroyCQ]: 'ibv_destroy_cq',
  [N.requestNotify]: 'ibv_req_notify_cq',
  [N.createQP]: 'ibv_create_qp',
  [N.queryQP]: 'ibv_query_qp',
  [N.modifyQP]: 'ibv_modify_qp',
  [N.destroyQP]: 'ibv_destroy_qp',
  [N.postSend]: 'ibv_post_send',
  [N.attachMulticast]: 'ibv_attach_mcast',
  [N.detachMulticast]: 'ibv_detach_mcast',
  [N.createSRQ]: 'ibv_create_srq',
  [N.modifySRQ]: 'ibv_modify_srq',
  [N.querySRQ]: 'ibv_query_srq',
  [N.destroySRQ]: 'ibv_destroy_srq',
  [N.createXSRQ]: 'ibv_create_srq_ex',
};

/** By number of an extended command of uverbs. */
export const EXTENDED_CALLS: Readonly<Partial<Record<number, string>>> = {
  [E.queryDevice]: 'ibv_query_device_ex',
  [E.createCQ]: 'ibv_create_cq_ex',
  [E.createQP]: 'ibv_create_qp_ex',
};

/** By number of a command of rdma_cm. */
export const CM_CALLS: Readonly<Partial<Record<number, string>>> = {
  [CmCommand.createId]: 'rdma_create_id',
  [CmCommand.destroyId]: 'rdma_destroy_id',
  [CmCommand.bindIp]: 'rdma_bind_addr',
  [CmCommand.resolveIp]: 'rdma_resolve_addr',
  [CmCommand.resolveRoute]: 'rdma_resolve_route',
  [CmCommand.queryRoute]: 'rdma_query_route',
  [CmCommand.connect]: 'rdma_connect',
  [CmCommand.listen]: 'rdma_listen',
  [CmCommand.accept]: 'rdma_accept',
  [CmCommand.reject]: 'rdma_reject',
  [CmCommand.disconnect]: 'rdma_disconnect',
  [CmCommand.initQpAttr]: 'rdma_init_qp_attr',
  [CmCommand.getEvent]: 'rdma_get_cm_event',
  [CmCommand.setOption]: 'rdma_set_option',
  [CmCommand.notify]: 'rdma_notify',
  [CmCommand.joinIpMulticast]: 'rdma_join_multicast',
  [CmCommand.leaveMulticast]: 'rdma_leave_multicast',
  [CmCommand.migrateId]: 'rdma_migrate_id',
  [CmCommand.query]: 'rdma_query_addrinfo',
  [CmCommand.bind]: 'rdma_bind_addr',
  [CmCommand.resolveAddr]: 'rdma_resolve_addr',
  [CmCommand.joinMulticast]: 'rdma_join_multicast',
  [CmCommand.resolveIbService]: 'rdma_resolve_addrinfo',
  [CmCommand.writeEvent]: 'rdma_write_cm_event',
};
