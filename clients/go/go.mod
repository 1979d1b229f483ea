module pgfresh/pgfreshtest

go 1.21
