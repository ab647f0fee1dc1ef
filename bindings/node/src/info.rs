//! Numbers about a store.

use brooklet::StoreInfo;
use napi_derive::napi;

use crate::call::Value;

/// Numbers about a store. Sizes are bytes.
#[napi(object)]
pub struct Info {
    pub format: f64,
    pub epoch: f64,
    pub size: f64,
    pub heap_free: f64,
    pub ring_size: f64,
    pub ring_in_use: f64,
    pub memtable_logs: f64,
    pub memtable_bytes: f64,
    pub runs: f64,
    pub run_bytes: f64,
    pub checkpointing: bool,
    pub compacting: bool,
    pub stopped: bool,
}

impl From<StoreInfo> for Info {
    fn from(info: StoreInfo) -> Self {
        Self {
            format: info.format.into(),
            epoch: info.epoch as f64,
            size: info.size as f64,
            heap_free: info.heap_free as f64,
            ring_size: info.ring_size as f64,
            ring_in_use: info.ring_in_use as f64,
            memtable_logs: info.memtable_logs as f64,
            memtable_bytes: info.memtable_bytes as f64,
            runs: info.runs.len() as f64,
            run_bytes: info.runs.iter().map(|run| run.bytes).sum::<u64>() as f64,
            checkpointing: info.checkpointing,
            compacting: info.compacting,
            stopped: info.stopped.is_some(),
        }
    }
}

impl Value for Info {
    type Js = Self;

    fn js(self) -> Self {
        self
    }
}
